//! Aborts a transaction: removes the file that waits. What is published stays.

use super::error::{Doing, FileError};
use super::failpoint::reached;
use super::folder;
use super::handle::FileHandle;

/// Removes the file; one that is gone, or never was, is no error.
pub(super) fn aborted(handle: &FileHandle) -> Result<(), FileError> {
    let pending = handle.pending();
    reached("files::abort").doing("remove", &pending)?;
    folder::removed(&pending).doing("remove", &pending)?;
    Ok(())
}
