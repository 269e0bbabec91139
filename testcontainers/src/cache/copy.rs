//! Copying a folder out of the cache.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use crate::Error;
use crate::error::Doing;
use crate::process::User;

/// Copies a folder with its permissions to a place that does not exist yet; the copy belongs to `owner`, or to us.
pub(crate) fn copy_folder(from: &Path, to: &Path, owner: Option<User>) -> Result<(), Error> {
    fs::create_dir(to).doing("create the folder", to)?;
    for entry in fs::read_dir(from).doing("list", from)? {
        let source = entry.doing("list", from)?.path();
        // An entry of a folder always has a last component.
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            copy_folder(&source, &target, owner)?;
        } else {
            fs::copy(&source, &target).doing("copy", &source)?;
            give(&target, owner)?;
        }
    }
    let permissions = fs::metadata(from).doing("look at", from)?.permissions();
    fs::set_permissions(to, permissions).doing("set the permissions of", to)?;
    give(to, owner)
}

/// Gives a file or folder to `owner`, if that is another one than us.
pub(crate) fn give(path: &Path, owner: Option<User>) -> Result<(), Error> {
    match owner {
        Some(user) => chown(path, Some(user.uid), Some(user.gid)).doing("change the owner of", path),
        None => Ok(()),
    }
}
