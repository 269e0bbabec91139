//! A crash, and an I/O error, at every fail point of a transaction.
//!
//! A crash is everything dropped at the point, without a step more: the panic that the point is set to unwinds through the
//! sink's call, the sink is dropped, and a new one goes on from what was stored. Which records must be there afterwards
//! depends on whether the handle was stored by then, and on nothing else.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fail::FailScenario;
use levada_core::batch::RawRecord;
use levada_core::template::{TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{
    Batch, BatchBuilder, CheckpointId, ErrorClass, Record, SinkContext, SinkError, SplitId, Storable,
    Timestamp,
};
use levada_files::sink::FAIL_POINTS;
use levada_files::{FileHandle, FileSink, FileSinkConfig};

const CTX: WriteContext = WriteContext { processing_time: Timestamp(0), watermark: Timestamp(0) };

/// Points that a transaction passes before its handle can be stored.
const BEFORE_STORED: &[&str] = &[
    "files::begin",
    "files::after_begin",
    "files::write",
    "files::before_sync",
    "files::after_sync",
    "files::after_pending_sync",
];

fn batch(item: &str) -> Batch<String> {
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("flights", 0));
    builder.push(split, RawRecord::default());
    let (parts, records) = builder.finish().0.into_parts();
    let of = |record: Record<()>| Record { origin: record.origin, item: item.to_owned() };
    parts.with_records(records.into_iter().map(of).collect())
}

async fn opened(folder: &Path) -> FileSink<String> {
    let mut sink = FileSink::new(FileSinkConfig::new(folder, "out"));
    sink.open(SinkContext { job: "job".to_owned(), subtask: 0, parallelism: 1 }).await.unwrap();
    sink
}

/// Keeps the handle of the last checkpoint, and outlives a crash.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Option<Vec<u8>>>>);

impl Store {
    fn put(&self, handle: &FileHandle) {
        let mut stored = Vec::new();
        handle.store(&mut stored);
        *self.0.lock().unwrap() = Some(stored);
    }

    fn get(&self) -> Option<FileHandle> {
        self.0.lock().unwrap().as_ref().map(|bytes| FileHandle::load(FileHandle::VERSION, bytes).unwrap())
    }
}

/// The first checkpoint of an attempt above all others here.
const ALL_EARLIER: CheckpointId = CheckpointId { attempt: 99, sequence: 1 };

/// Writes one transaction to its end; its handle is stored when a checkpoint would be.
async fn transaction(folder: &Path, attempt: u64, store: &Store) -> Result<(), SinkError> {
    let mut sink = opened(folder).await;
    let checkpoint = CheckpointId::new(attempt, 1);
    let mut handle = sink.begin(&TransactionName { subtask: 0, checkpoint }).await?;
    sink.write(&mut handle, batch("a"), &CTX).await?;
    sink.pre_commit(&mut handle).await?;
    store.put(&handle);
    sink.commit(&handle).await
}

/// Goes on from what is stored, and writes what it does not cover again.
async fn started(folder: &Path, attempt: u64, store: &Store) -> Result<(), SinkError> {
    let mut sink = opened(folder).await;
    match store.get() {
        Some(handle) => {
            sink.commit(&handle).await?;
            sink.fence(ALL_EARLIER, &[]).await
        }
        None => {
            sink.fence(ALL_EARLIER, &[]).await?;
            transaction(folder, attempt, store).await
        }
    }
}

fn text(folder: &Path) -> String {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn waiting(folder: &Path) -> usize {
    fs::read_dir(folder.join(".pending")).unwrap().count()
}

/// The points of one transaction from its beginning to its commit.
fn points() -> impl Iterator<Item = &'static str> {
    FAIL_POINTS.iter().copied().filter(|point| !["files::abort", "files::fence"].contains(point))
}

/// [TPL-10] [TPL-16]
#[tokio::test]
async fn a_crash_at_any_step_and_again_at_the_same_step_neither_doubles_nor_loses() {
    let scenario = FailScenario::setup();
    for point in points() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::default();
        fail::cfg(point, "panic").unwrap();
        let mut crashes = 0;
        for attempt in 1..4 {
            let (path, of_attempt) = (folder.path().to_owned(), store.clone());
            let run = tokio::spawn(async move { started(&path, attempt, &of_attempt).await });
            match run.await {
                Ok(outcome) => outcome.unwrap(),
                Err(error) => {
                    assert!(error.is_panic());
                    crashes += 1;
                }
            }
            assert_eq!(store.get().is_none(), BEFORE_STORED.contains(&point), "{point}");
        }
        assert!(crashes > 0, "{point} is passed");
        fail::remove(point);
        started(folder.path(), 9, &store).await.unwrap();
        assert_eq!(text(folder.path()), "a\n", "{point}");
        assert_eq!(waiting(folder.path()), 0, "{point}");
    }
    scenario.teardown();
}

/// [TPL-13] an error before the handle is stored ends the attempt; one after it is tried again.
#[tokio::test]
async fn an_error_at_any_step_leaves_a_transaction_that_can_be_tried_again_or_begun_anew() {
    let scenario = FailScenario::setup();
    for point in points() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::default();
        fail::cfg(point, "return").unwrap();
        let error = started(folder.path(), 1, &store).await.unwrap_err();
        assert_eq!(store.get().is_none(), BEFORE_STORED.contains(&point), "{point}");
        if store.get().is_some() {
            assert_eq!(error.class, ErrorClass::Retry, "{point}: {error}");
        }
        fail::remove(point);
        started(folder.path(), 2, &store).await.unwrap();
        assert_eq!(text(folder.path()), "a\n", "{point}");
        assert_eq!(waiting(folder.path()), 0, "{point}");
    }
    scenario.teardown();
}

/// The two points that a transaction which succeeds does not pass.
#[tokio::test]
async fn abort_and_fence_pass_their_fail_points() {
    let scenario = FailScenario::setup();
    let folder = tempfile::tempdir().unwrap();
    for point in ["files::abort", "files::fence"] {
        fail::cfg(point, "return").unwrap();
        let mut sink = opened(folder.path()).await;
        let checkpoint = CheckpointId::new(1, 1);
        let handle = sink.begin(&TransactionName { subtask: 0, checkpoint }).await.unwrap();
        let is_passed = match point {
            "files::abort" => sink.abort(&handle).await.is_err(),
            _ => sink.fence(ALL_EARLIER, &[]).await.is_err(),
        };
        assert!(is_passed, "{point}");
        fail::remove(point);
        sink.abort(&handle).await.unwrap();
    }
    scenario.teardown();
}
