//! Pre-commits a transaction: after it, the records survive whatever happens, and nobody sees them.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::error::{Doing, FileError};
use super::failpoint::reached;
use super::folder::{self, PENDING};
use super::handle::FileHandle;
use super::judge::{Verdict, judged};

/// Makes the file durable, then its name.
pub(super) fn synced(file: &File, handle: &FileHandle) -> Result<(), FileError> {
    let pending = handle.pending();
    reached("files::before_sync").doing("sync", &pending)?;
    file.sync_all().doing("sync", &pending).map_err(FileError::ending_the_transaction)?;
    reached("files::after_sync").doing("sync", &pending)?;
    let waiting = handle.folder().join(PENDING);
    folder::synced(&waiting).doing("sync the folder", &waiting).map_err(FileError::ending_the_transaction)?;
    reached("files::after_pending_sync").doing("sync the folder", &waiting)?;
    // Last: what a takeover removes from here on it had to know by its handle.
    if file.metadata().doing("look at", &pending)?.nlink() == 0 {
        return Err(FileError::TakenOver(handle.clone()));
    }
    Ok(())
}

/// Pre-commits one that this sink does not have open: it must be pre-committed already.
pub(super) fn repeated(handle: &FileHandle) -> Result<(), FileError> {
    let is_there = match handle.is_pre_committed {
        true => handle.is_empty() || matches!(judged(handle)?, Verdict::Pending | Verdict::Published),
        false => false,
    };
    match is_there {
        true => Ok(()),
        false => Err(FileError::NotBegun(handle.clone())),
    }
}
