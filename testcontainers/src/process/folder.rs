//! The folder of one server: data, configuration and log. It goes when its owner goes.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::disk::SmallDisk;
use super::reaper;
use crate::Error;
use crate::error::Doing;
use crate::names::unique_name;

/// A fresh folder in the system's folder for temporary files (`TMPDIR`), removed on drop, or by the reaper.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
    /// Where the data lies, if not on the disk of everybody else.
    disk: Option<SmallDisk>,
}

impl DataFolder {
    /// Creates an empty folder that only its owner may enter. The reaper hears of it before it exists.
    pub(crate) fn create(server: &str) -> Result<DataFolder, Error> {
        let path = path_in(&std::env::temp_dir(), server)?;
        reaper::register_folder(&path)?;
        DirBuilder::new().mode(0o700).create(&path).doing("create the folder", &path)?;
        Ok(DataFolder { path, disk: None })
    }

    /// Creates one whose data have a disk of their own of that many bytes.
    pub(crate) fn create_with_disk(server: &str, bytes: Option<u64>) -> Result<DataFolder, Error> {
        let mut folder = DataFolder::create(server)?;
        folder.disk = match bytes {
            Some(bytes) => Some(SmallDisk::mount(&folder.path.join("disk"), bytes)?),
            None => None,
        };
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder for the server's data; whoever starts the server makes it. (The reaper knows both places.)
    pub(crate) fn data(&self) -> PathBuf {
        let parent = if self.disk.is_some() { self.path.join("disk") } else { self.path.clone() };
        parent.join("data")
    }

    /// Returns the file for the server's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// Returns the disk of its own.
    pub(crate) fn disk(&self) -> Result<&SmallDisk, Error> {
        self.disk.as_ref().ok_or(Error::Refused { what: "a full disk needs the builder's `disk`" })
    }
}

/// Returns a new path in the folder for temporary files: an absolute one, because servers and the reaper work elsewhere.
fn path_in(temporary: &Path, server: &str) -> Result<PathBuf, Error> {
    let path = temporary.join(unique_name(&format!("levada-{server}")));
    std::path::absolute(&path).doing("find the way to", &path)
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // Before the folder around it.
        self.disk.take();
        // What cannot be removed now, the reaper tries again at the end of this process.
        fs::remove_dir_all(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::path_in;

    /// [TST-05] The reaper would remove something else, or nothing.
    #[test]
    fn a_relative_folder_for_temporary_files_is_the_same_one_for_everybody() {
        let here = std::env::current_dir().unwrap();
        let path = path_in(Path::new("relative"), "kafka").unwrap();
        assert_eq!(path.parent().unwrap(), here.join("relative"));
    }
}
