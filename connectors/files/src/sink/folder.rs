//! The folder that is written to, and the hidden one in it where files wait for their commit.
//!
//! The hidden folder is inside: on the same file system, so that publishing is one step, and where readers that list the
//! folder do not look.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::error::{Doing, FileError};

/// The name of the hidden folder.
pub(super) const PENDING: &str = ".pending";

/// Checks the folder, makes the hidden one, and returns the folder's absolute path.
pub(super) fn opened(folder: &Path) -> Result<PathBuf, FileError> {
    let folder = std::path::absolute(folder).doing("find the folder", folder)?;
    let found = match fs::metadata(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(FileError::NoFolder(folder)),
        found => found.doing("look at", &folder)?,
    };
    if !found.is_dir() {
        return Err(FileError::NotAFolder(folder));
    }
    let pending = folder.join(PENDING);
    match fs::create_dir(&pending) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(FileError::Permission(folder));
        }
        made => {
            made.doing("make the folder", &pending)?;
            synced(&folder).doing("sync the folder", &folder)?;
        }
    }
    let waiting = fs::metadata(&pending).doing("look at", &pending)?;
    if !waiting.is_dir() {
        return Err(FileError::NotAFolder(pending));
    }
    if waiting.dev() != found.dev() {
        return Err(FileError::OtherFileSystem(pending));
    }
    for path in [&folder, &pending] {
        access(path, AccessFlags::W_OK | AccessFlags::X_OK)
            .map_err(|_| FileError::Permission(path.clone()))?;
    }
    Ok(folder)
}

/// Makes the names in a folder durable.
pub(super) fn synced(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file; one that is not there is no error.
pub(super) fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
