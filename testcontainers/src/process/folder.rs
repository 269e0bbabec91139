//! The folder of one server: data, configuration and log. It goes when its owner goes.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::reaper;
use crate::Error;
use crate::error::Doing;
use crate::names::unique_name;

/// A fresh folder in the system's folder for temporary files (`TMPDIR`), removed on drop, or by the reaper.
#[derive(Debug)]
pub(crate) struct DataFolder {
    path: PathBuf,
}

impl DataFolder {
    /// Creates an empty folder that only its owner may enter. The reaper hears of it before it exists.
    pub(crate) fn create(server: &str) -> Result<DataFolder, Error> {
        let path = std::env::temp_dir().join(unique_name(&format!("levada-{server}")));
        reaper::register_folder(&path)?;
        DirBuilder::new().mode(0o700).create(&path).doing("create the folder", &path)?;
        Ok(DataFolder { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // What cannot be removed now, the reaper tries again at the end of this process.
        fs::remove_dir_all(&self.path).ok();
    }
}
