//! What is fetched or made once per machine: Kafka's jars, a formatted Kafka folder, an initialised Postgres folder.
//!
//! An entry is a folder. It is filled under another name, sealed with a manifest (names and sizes of its files), and only
//! then renamed: a folder without a manifest that matches is not an entry and is never used. One maker at a time holds
//! the lock next to it; readers of a sealed entry need none.

mod classes;
mod copy;
mod jars;
mod manifest;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::error::Doing;
use crate::names::unique_name;

pub(crate) use classes::{class_archive, existing_class_archive};
pub(crate) use copy::{copy_folder, give};
pub(crate) use jars::{DEFAULT_VERSION, Jars, jars};

/// Returns the cache folder: `$LEVADA_CACHE`, else `$XDG_CACHE_HOME/levada`, else `~/.cache/levada`.
pub(crate) fn folder() -> Result<PathBuf, Error> {
    let set =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("LEVADA_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("levada")))
        .or_else(|| Some(set("HOME")?.join(".cache/levada")))
        // Servers run in another working folder, so a relative path would mean another place there.
        .and_then(|path| std::path::absolute(path).ok())
        .ok_or(Error::NoCacheFolder)
}

/// Returns the entry `name`, making it with `fill` unless it is there and whole.
///
/// `fill` gets an empty folder. When it fails, or this process dies in it, nothing is left that would be taken for an entry.
pub(crate) fn entry(name: &str, fill: impl FnOnce(&Path) -> Result<(), Error>) -> Result<PathBuf, Error> {
    let cache = folder()?;
    let sealed = cache.join(name);
    if manifest::matches(&sealed) {
        return Ok(sealed);
    }
    fs::create_dir_all(&cache).doing("create the folder", &cache)?;
    let _maker = lock(&cache.join(format!("{name}.lock")))?;
    // Another process may have made it while we waited for the lock.
    if manifest::matches(&sealed) {
        return Ok(sealed);
    }
    let partial = format!("{name}.partial");
    remove_partial(&cache, &partial)?;
    remove(&sealed)?;
    // A name of its own: a program of an earlier maker that was killed may still be writing to the earlier folder.
    let unsealed = cache.join(unique_name(&partial));
    fs::create_dir(&unsealed).doing("create the folder", &unsealed)?;
    if let Err(error) = fill(&unsealed).and_then(|()| manifest::write(&unsealed)) {
        // What cannot be removed now, the next maker tries again.
        remove(&unsealed).ok();
        return Err(error);
    }
    fs::rename(&unsealed, &sealed).doing("rename", &unsealed)?;
    Ok(sealed)
}

/// Waits for the lock on `path` and holds it until the file is dropped, or this process ends.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    let file = File::create(path).doing("create the lock", path)?;
    file.lock().doing("lock", path)?;
    Ok(file)
}

/// Removes what makers left that died or failed; the caller holds the lock, so none of them is at work.
fn remove_partial(cache: &Path, partial: &str) -> Result<(), Error> {
    for entry in fs::read_dir(cache).doing("list", cache)? {
        let entry = entry.doing("list", cache)?;
        if entry.file_name().to_string_lossy().starts_with(partial) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).doing("remove", folder),
        _ => Ok(()),
    }
}
