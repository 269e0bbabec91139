//! Tells from the two places of a transaction's file what has become of it.
//!
//! ```text
//!   waiting   published   verdict
//!   yes       –           pending
//!   yes       the same    published: a commit was interrupted before it removed the first name
//!   –         yes         committed
//!   yes       another     foreign: never overwritten
//!   –         –           lost
//!   of another length     damaged
//! ```

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::error::{Doing, FileError};
use super::handle::FileHandle;

/// What is known of a file: which one it is, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    device: u64,
    inode: u64,
    bytes: u64,
}

/// What has become of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pending,
    Published,
    Committed,
    Foreign,
    Lost,
    /// With the length that was found, and whether it was waiting.
    Damaged {
        found: u64,
        is_waiting: bool,
    },
}

/// Looks at both places and judges.
///
/// The waiting one first: its name goes only when the other is there, so a commit by another process in between is seen as
/// published or committed, never as lost.
pub(super) fn judged(handle: &FileHandle) -> Result<Verdict, FileError> {
    let pending = facts(&handle.pending())?;
    let target = facts(&handle.target())?;
    if pending.is_none() && target.is_none() {
        // A folder that is away is no proof of a loss.
        fs::metadata(handle.folder()).doing("look at", handle.folder())?;
    }
    Ok(judge(handle.bytes, pending, target))
}

fn facts(path: &Path) -> Result<Option<Facts>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(Facts { device: found.dev(), inode: found.ino(), bytes: found.len() })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("look at", path),
    }
}

fn judge(bytes: u64, pending: Option<Facts>, target: Option<Facts>) -> Verdict {
    match (pending, target) {
        (Some(waiting), _) if waiting.bytes != bytes => {
            Verdict::Damaged { found: waiting.bytes, is_waiting: true }
        }
        (Some(_), None) => Verdict::Pending,
        (Some(waiting), Some(published)) if waiting == published => Verdict::Published,
        (Some(_), Some(_)) => Verdict::Foreign,
        (None, Some(published)) if published.bytes != bytes => {
            Verdict::Damaged { found: published.bytes, is_waiting: false }
        }
        (None, Some(_)) => Verdict::Committed,
        (None, None) => Verdict::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [TPL-10] [TPL-16] every combination of the two places.
    #[test]
    fn the_two_places_tell_what_has_become_of_a_transaction() {
        let ours = Some(Facts { device: 1, inode: 7, bytes: 10 });
        let other = Some(Facts { device: 1, inode: 8, bytes: 10 });
        let short = Some(Facts { device: 1, inode: 7, bytes: 9 });
        let verdicts = [
            (ours, None, Verdict::Pending),
            (ours, ours, Verdict::Published),
            (ours, other, Verdict::Foreign),
            (None, ours, Verdict::Committed),
            (None, None, Verdict::Lost),
            (short, None, Verdict::Damaged { found: 9, is_waiting: true }),
            (short, short, Verdict::Damaged { found: 9, is_waiting: true }),
            (None, short, Verdict::Damaged { found: 9, is_waiting: false }),
        ];
        for (pending, target, verdict) in verdicts {
            assert_eq!(judge(10, pending, target), verdict, "{pending:?} {target:?}");
        }
    }
}
