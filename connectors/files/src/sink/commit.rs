//! Commits a transaction: gives its file the name under which readers find it.
//!
//! ```text
//!   .pending/NAME ──link──▶ NAME            readers see all of it, or nothing; a file that is there is never replaced
//!                  sync the folder          the new name is durable …
//!                  unlink .pending/NAME     … before the old one goes
//! ```
//!
//! A plain rename would replace a file that has the name. Interrupted anywhere, the same steps again come to the same end:
//! both names stand for one file, which is how a repetition knows its own work.

use std::fs;
use std::io::ErrorKind;

use super::error::{Doing, FileError};
use super::failpoint::reached;
use super::folder;
use super::handle::FileHandle;
use super::judge::{Verdict, judged};

/// Publishes the file, or finds that it is published.
pub(super) fn committed(handle: &FileHandle) -> Result<(), FileError> {
    steps(handle).map_err(FileError::keeping_the_transaction)
}

fn steps(handle: &FileHandle) -> Result<(), FileError> {
    if !handle.is_pre_committed {
        return Err(FileError::NotPreCommitted(handle.clone()));
    }
    let (pending, target) = (handle.pending(), handle.target());
    if handle.is_empty() {
        // Readers get no file without a record.
        folder::removed(&pending).doing("remove", &pending)?;
        return Ok(());
    }
    if is_waiting(handle)? {
        reached("files::before_rename").doing("publish", &target)?;
        match fs::hard_link(&pending, &target) {
            // Another process commits the same transaction: whose link it was does not matter.
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
                if is_waiting(handle)? {
                    return Err(FileError::io("publish", target, error));
                }
            }
            linked => linked.doing("publish", &target)?,
        }
        reached("files::after_rename").doing("publish", &target)?;
    }
    // Also when it was published before: perhaps by a process that got no further.
    reached("files::before_folder_sync").doing("sync the folder", handle.folder())?;
    folder::synced(handle.folder()).doing("sync the folder", handle.folder())?;
    reached("files::before_unlink").doing("remove", &pending)?;
    folder::removed(&pending).doing("remove", &pending)?;
    reached("files::after_unlink").doing("remove", &pending)
}

/// Tells whether the file is still to be published; what can be neither is an error.
fn is_waiting(handle: &FileHandle) -> Result<bool, FileError> {
    match judged(handle)? {
        Verdict::Pending => Ok(true),
        Verdict::Published | Verdict::Committed => Ok(false),
        Verdict::Foreign => Err(FileError::Foreign(handle.clone())),
        Verdict::Lost => Err(FileError::Lost(handle.clone())),
        Verdict::Damaged { found, is_waiting } => {
            let path = if is_waiting { handle.pending() } else { handle.target() };
            Err(FileError::Damaged { handle: handle.clone(), path, found })
        }
    }
}
