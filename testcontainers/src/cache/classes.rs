//! An archive of the classes that a starting broker loads: the JVM maps it instead of parsing a thousand jar entries.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Jars, lock};
use crate::Error;
use crate::error::Doing;

/// Returns the archive for this Java, making it with `record` if there is none.
///
/// `record` runs a broker that writes the archive to the path it is given when it ends. The JVM checks by itself that an
/// archive fits it and the jars, and goes on without when it does not, so a failure to make one costs time only.
pub(crate) fn class_archive(
    java: &Path,
    jars: &Jars,
    record: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let folder = jars.archives();
    let archive = archive_path(java, jars)?;
    if archive.is_file() {
        return Ok(archive);
    }
    fs::create_dir_all(&folder).doing("create the folder", &folder)?;
    let _maker = lock(&folder.join("lock"))?;
    if archive.is_file() {
        return Ok(archive);
    }
    let partial = folder.join("partial");
    fs::remove_file(&partial).ok();
    record(&partial)?;
    fs::rename(&partial, &archive).doing("rename", &partial)?;
    Ok(archive)
}

/// Returns the archive for this Java, if there is one: another JVM over the same jars starts in half the time with it.
pub(crate) fn existing_class_archive(java: &Path, jars: &Jars) -> Option<PathBuf> {
    archive_path(java, jars).ok().filter(|archive| archive.is_file())
}

fn archive_path(java: &Path, jars: &Jars) -> Result<PathBuf, Error> {
    Ok(jars.archives().join(format!("{:016x}.jsa", fingerprint(java, jars)?)))
}

/// Returns a number that changes when Java is updated or the jars are fetched anew: the JVM would refuse the archive.
fn fingerprint(java: &Path, jars: &Jars) -> Result<u64, Error> {
    let java = java.canonicalize().doing("find", java)?;
    let lib = jars.lib();
    let mut hasher = DefaultHasher::new();
    for path in [&java, &lib] {
        let metadata = fs::metadata(path).doing("look at", path)?;
        (path, metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
    }
    Ok(hasher.finish())
}
