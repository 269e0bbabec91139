//! A crash, and an I/O error, at every fail point of a transaction.
//!
//! A crash is everything dropped at the point, without a step more: the panic that the point is set to unwinds through the
//! sink's call, the sink is dropped, and a new one goes on from what was stored. Which records must be there afterwards
//! depends on whether the handle was stored by then, and on nothing else.

use std::fs;
use std::path::Path;

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

/// Writes one transaction to its end; stores the handle as a checkpoint store would, in the moment when it would.
async fn transaction(folder: &Path, attempt: u64, stored: &mut Option<Vec<u8>>) -> Result<(), SinkError> {
    let mut sink = opened(folder).await;
    let checkpoint = CheckpointId::new(attempt, 1);
    let mut handle = sink.begin(&TransactionName { subtask: 0, checkpoint }).await?;
    sink.write(&mut handle, batch("a"), &CTX).await?;
    sink.pre_commit(&mut handle).await?;
    let mut bytes = Vec::new();
    handle.store(&mut bytes);
    *stored = Some(bytes);
    sink.commit(&handle).await
}

/// Restores from what is stored, and writes what is not covered again.
async fn restart(folder: &Path, attempt: u64, stored: &mut Option<Vec<u8>>) -> Result<(), SinkError> {
    let mut sink = opened(folder).await;
    match stored {
        Some(bytes) => {
            let handle = FileHandle::load(FileHandle::VERSION, bytes).unwrap();
            sink.commit(&handle).await?;
            sink.fence(&[]).await
        }
        None => {
            sink.fence(&[]).await?;
            transaction(folder, attempt, stored).await
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
        let (path, mut stored) = (folder.path().to_owned(), None);
        fail::cfg(point, "panic").unwrap();
        for attempt in 1..4 {
            let (of, mut storing) = (path.clone(), stored.clone());
            let crashed = tokio::spawn(async move {
                // The store outlives the crash: what was stored before it is told by the file system alone here.
                let outcome = match attempt {
                    1 => transaction(&of, attempt, &mut storing).await,
                    _ => restart(&of, attempt, &mut storing).await,
                };
                outcome.map(|()| storing)
            });
            let ended = crashed.await;
            // After the first restart nothing passes the points before the link any more, if it went that far.
            if let Ok(outcome) = ended {
                stored = outcome.unwrap();
                continue;
            }
            if !BEFORE_STORED.contains(&point) && stored.is_none() {
                stored = Some(handle_bytes(&path, attempt));
            }
        }
        fail::remove(point);
        restart(&path, 9, &mut stored).await.unwrap();
        assert_eq!(text(&path), "a\n", "{point}");
        assert_eq!(waiting(&path), 0, "{point}");
    }
    scenario.teardown();
}

/// Builds the bytes that the crashed attempt had stored: format version 1, of one record of two bytes.
fn handle_bytes(folder: &Path, attempt: u64) -> Vec<u8> {
    let path = folder.as_os_str().as_encoded_bytes();
    let mut bytes = [2_u64, 1, path.len() as u64].map(u64::to_be_bytes).concat();
    bytes.extend_from_slice(path);
    bytes.extend_from_slice(format!("job.out.{attempt:020}-{:020}-{:010}", 1, 0).as_bytes());
    bytes
}

/// [TPL-13] an error before the handle is stored ends the attempt; one after it is tried again.
#[tokio::test]
async fn an_error_at_any_step_leaves_a_transaction_that_can_be_tried_again_or_begun_anew() {
    let scenario = FailScenario::setup();
    for point in points() {
        let folder = tempfile::tempdir().unwrap();
        let mut stored = None;
        fail::cfg(point, "return").unwrap();
        let error = transaction(folder.path(), 1, &mut stored).await.unwrap_err();
        assert_eq!(stored.is_none(), BEFORE_STORED.contains(&point), "{point}");
        if stored.is_some() {
            assert_eq!(error.class, ErrorClass::Retry, "{point}: {error}");
            assert!(restart(folder.path(), 2, &mut stored).await.is_err(), "{point} is passed again");
        }
        fail::remove(point);
        restart(folder.path(), 2, &mut stored).await.unwrap();
        assert_eq!(text(folder.path()), "a\n", "{point}");
        assert_eq!(waiting(folder.path()), 0, "{point}");
    }
    scenario.teardown();
}

/// Every name in the list is passed by some verb: a crash loop that sets a misspelt one would prove nothing.
#[tokio::test]
async fn every_fail_point_is_there() {
    let scenario = FailScenario::setup();
    let folder = tempfile::tempdir().unwrap();
    for point in ["files::abort", "files::fence"] {
        fail::cfg(point, "return").unwrap();
        let mut sink = opened(folder.path()).await;
        let checkpoint = CheckpointId::new(1, 1);
        let handle = match sink.begin(&TransactionName { subtask: 0, checkpoint }).await {
            Ok(handle) => handle,
            Err(error) => panic!("{error}"),
        };
        let is_passed = match point {
            "files::abort" => sink.abort(&handle).await.is_err(),
            _ => sink.fence(&[]).await.is_err(),
        };
        assert!(is_passed, "{point}");
        fail::remove(point);
        sink.abort(&handle).await.unwrap();
    }
    scenario.teardown();
}
