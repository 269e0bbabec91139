//! Segments in memory, and markers in the engine's files.

use levada_conformance::{Histories, WriteAheadTarget};
use levada_core::BoxError;
use levada_engine::driver::FileCommitter;
use tempfile::TempDir;

use crate::memory::{Memory, MemorySink};

pub(crate) struct MarkerFiles {
    memory: Memory,
    folder: TempDir,
}

impl MarkerFiles {
    pub(crate) fn new() -> Self {
        Self { memory: Memory::default(), folder: tempfile::tempdir().expect("a folder") }
    }
}

impl WriteAheadTarget for MarkerFiles {
    type Item = u64;
    type Sink = MemorySink;
    type Committer = FileCommitter;

    fn sinks(&self, count: u32) -> Vec<(MemorySink, FileCommitter)> {
        let sinks = self.memory.sinks(count).into_iter();
        sinks.map(|(sink, _)| (sink, FileCommitter::new(self.folder.path()))).collect()
    }

    fn item(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        self.memory.visible().await
    }

    // Each marker is a file that is synced.
    fn histories(&self) -> Histories {
        Histories::count(40)
    }
}
