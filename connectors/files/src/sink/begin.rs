//! Begins a transaction: makes the file that its records are written to.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::sync::Arc;

use super::error::{Doing, FileError};
use super::failpoint::reached;
use super::handle::FileHandle;
use super::write::Writer;

/// Makes the file. One of the name that is there already is left as it is.
pub(super) fn begun(handle: &FileHandle) -> Result<Writer, FileError> {
    let pending = handle.pending();
    reached("files::begin").doing("make", &pending)?;
    let target = handle.target();
    // Its commit would fail, and by then there would be records to lose.
    if fs::exists(&target).doing("look for", &target)? {
        return Err(FileError::NameTaken(target));
    }
    let file = match File::options().write(true).create_new(true).open(&pending) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(FileError::NameTaken(pending)),
        made => made.doing("make", &pending)?,
    };
    reached("files::after_begin").doing("make", &pending)?;
    Ok(Writer::new(Arc::new(file)))
}
