//! A folder, sinks that write into it, and a reader of it.

use std::fs;
use std::path::{Path, PathBuf};

use levada_core::batch::RawRecord;
use levada_core::template::{TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{
    Batch, BatchBuilder, CheckpointId, Record, SinkContext, SinkError, SplitId, Storable, Timestamp,
};
use levada_files::{FileHandle, FileSink, FileSinkConfig};
use tempfile::TempDir;

pub(crate) const CTX: WriteContext =
    WriteContext { processing_time: Timestamp(0), watermark: Timestamp(i64::MIN) };

/// The first checkpoint of an attempt above all others of a test: its fence ends whatever is not kept.
pub(crate) const ALL_EARLIER: CheckpointId = CheckpointId { attempt: 99, sequence: 1 };

pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn config(&self) -> FileSinkConfig {
        FileSinkConfig::new(self.folder(), "out").suffix(".txt")
    }

    /// Opens a sink as a new process would: it knows of no other.
    pub(crate) async fn sink(&self) -> FileSink<String> {
        opened(self.config()).await.expect("the folder is there")
    }

    /// Lists what a reader sees.
    pub(crate) fn visible(&self) -> Vec<PathBuf> {
        visible(self.folder())
    }

    /// Lists what waits.
    pub(crate) fn waiting(&self) -> Vec<PathBuf> {
        listed(&self.folder().join(".pending"))
    }

    /// Reads everything that is visible, in the order of the names.
    pub(crate) fn text(&self) -> String {
        self.visible().iter().map(|path| fs::read_to_string(path).expect("a visible file")).collect()
    }
}

pub(crate) async fn opened(config: FileSinkConfig) -> Result<FileSink<String>, SinkError> {
    let mut sink = FileSink::new(config);
    sink.open(context("job", 0)).await.map(|()| sink)
}

pub(crate) fn context(job: &str, subtask: u32) -> SinkContext {
    SinkContext { job: job.to_owned(), subtask, parallelism: 4 }
}

pub(crate) fn visible(folder: &Path) -> Vec<PathBuf> {
    let is_shown = |path: &PathBuf| !path.file_name().expect("a name").as_encoded_bytes().starts_with(b".");
    listed(folder).into_iter().filter(is_shown).collect()
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

pub(crate) fn name(attempt: u64, sequence: u64, subtask: u32) -> TransactionName {
    TransactionName { subtask, checkpoint: CheckpointId::new(attempt, sequence) }
}

pub(crate) fn batch<T>(items: Vec<T>) -> Batch<T> {
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("flights", 0));
    for offset in 0..items.len() as u64 {
        builder.push(split, RawRecord { offset, ..RawRecord::default() });
    }
    let (parts, records) = builder.finish().0.into_parts();
    let of = |(record, item): (Record<()>, T)| Record { origin: record.origin, item };
    parts.with_records(records.into_iter().zip(items).map(of).collect())
}

pub(crate) fn lines(items: &[&str]) -> Batch<String> {
    batch(items.iter().map(|&item| item.to_owned()).collect())
}

/// Writes a transaction and leaves it as a checkpoint would store it.
pub(crate) async fn pre_committed(
    sink: &mut FileSink<String>,
    name: TransactionName,
    items: &[&str],
) -> FileHandle {
    let mut handle = sink.begin(&name).await.expect("begin");
    sink.write(&mut handle, lines(items), &CTX).await.expect("write");
    sink.pre_commit(&mut handle).await.expect("pre-commit");
    stored_and_loaded(&handle)
}

pub(crate) fn stored_and_loaded(handle: &FileHandle) -> FileHandle {
    let mut stored = Vec::new();
    handle.store(&mut stored);
    FileHandle::load(FileHandle::VERSION, &stored).expect("its own bytes")
}
