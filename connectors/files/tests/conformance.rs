//! The file sink keeps the promises of its template.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use levada_conformance::{Histories, TwoPhaseTarget};
use levada_core::BoxError;
use levada_files::{FileHandle, FileSink, FileSinkConfig};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }
}

/// Lists what is in a folder, by name: so the files give each subtask's records in order.
fn listed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths = entries.iter().map(fs::DirEntry::path).filter(|path| path.is_file()).collect::<Vec<_>>();
    paths.sort();
    Ok(paths)
}

impl TwoPhaseTarget for Folder {
    type Item = String;
    type Sink = FileSink<String>;

    fn sinks(&self, count: u32) -> Vec<FileSink<String>> {
        let config = FileSinkConfig::new(self.0.path(), "out").suffix(".txt");
        (0..count).map(|_| FileSink::new(config.clone())).collect()
    }

    fn item(&self, number: u64) -> String {
        number.to_string()
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        let texts = listed(self.0.path())?.iter().map(fs::read_to_string).collect::<io::Result<String>>()?;
        Ok(texts.lines().map(str::parse).collect::<Result<_, _>>()?)
    }

    async fn left_over(&self) -> Result<Option<Vec<String>>, BoxError> {
        let waiting = self.0.path().join(".pending");
        if !waiting.exists() {
            return Ok(Some(Vec::new()));
        }
        Ok(Some(listed(&waiting)?.iter().map(|path| path.display().to_string()).collect()))
    }

    async fn lose(&self, handle: &FileHandle) -> Result<bool, BoxError> {
        fs::remove_file(handle.pending())?;
        Ok(true)
    }

    // Each commit syncs a file and a folder, twice.
    fn histories(&self) -> Histories {
        Histories::count(40)
    }
}

/// [TPL-16] [TPL-18]
mod two_phase {
    levada_conformance::two_phase_tests!(crate::Folder::new());
}
