//! A process that dies at each fail point of the drivers, and the next one that goes on from the latest complete
//! checkpoint. In a binary of its own, because fail points are the whole process's.

// Scripts of the other tests, of which these use a part.
#[allow(dead_code)]
#[path = "../driver/scripted.rs"]
mod scripted;
#[allow(dead_code)]
#[path = "../driver/segments.rs"]
mod segments;
#[allow(dead_code)]
#[path = "../driver/table.rs"]
mod table;
#[allow(dead_code)]
#[path = "../driver/transactions.rs"]
mod transactions;

use std::sync::{Arc, Mutex};

use fail::FailScenario;
use levada_core::template::{CheckpointCommitter, Marker};
use levada_core::{CheckpointId, State};
use levada_engine::driver::{
    DriverError, FAIL_POINTS, FileCommitter, IdempotentDriver, JobRecovery, Restored, SinkDriver,
    WriteAheadDriver,
};
use tempfile::TempDir;

use crate::scripted::{barrier, context, write};

/// How many numbers the source has.
const LAST: u64 = 8;

/// What outlives the process: the latest complete checkpoint, and where the source stood.
#[derive(Debug, Clone, Default)]
struct Store(Arc<Mutex<Option<(CheckpointId, u64, State)>>>);

impl Store {
    fn newest(&self) -> Option<(CheckpointId, u64, State)> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs to the end, two numbers to a checkpoint; every other notification is lost. The first attempt is cancelled in the
/// middle of an interval.
async fn run<D: SinkDriver<u64>>(mut driver: D, attempt: u64, store: Store) -> Result<bool, DriverError> {
    let newest = store.newest();
    let mut position = newest.as_ref().map_or(0, |(_, position, _)| *position);
    let restored = newest.map(|(checkpoint, _, state)| Restored { checkpoint, state });
    driver.open(context(0, 1, attempt), restored).await?;
    let mut sequence = 0;
    while position < LAST {
        if attempt == 1 && position + 2 == LAST {
            write(&mut driver, [position + 1]).await?;
            driver.close().await;
            return Ok(false);
        }
        write(&mut driver, [position + 1]).await?;
        write(&mut driver, [position + 2]).await?;
        position += 2;
        sequence += 1;
        let checkpoint = CheckpointId::new(attempt, sequence);
        let state = barrier(&mut driver, checkpoint).await?;
        *store.0.lock().unwrap() = Some((checkpoint, position, state));
        if sequence % 2 == 1 {
            driver.complete(checkpoint).await?;
        }
    }
    driver.finish().await?;
    let checkpoint = CheckpointId::new(attempt, sequence + 1);
    let state = barrier(&mut driver, checkpoint).await?;
    *store.0.lock().unwrap() = Some((checkpoint, position, state));
    driver.complete(checkpoint).await?;
    driver.close().await;
    Ok(true)
}

/// Starts processes until one comes to the end; one of them dies where `point` is passed for the `pass`th time.
async fn survive<D: SinkDriver<u64> + 'static>(
    point: &'static str,
    pass: usize,
    mut start: impl AsyncFnMut(&Store) -> D,
) {
    fail::cfg(point, &format!("{}*off->1*panic->off", pass - 1)).unwrap();
    let (store, mut deaths) = (Store::default(), 0);
    for attempt in 1..10 {
        let driver = start(&store).await;
        match tokio::spawn(run(driver, attempt, store.clone())).await {
            Ok(ended) => {
                if ended.unwrap() {
                    break;
                }
            }
            Err(died) => {
                assert!(died.is_panic());
                deaths += 1;
            }
        }
    }
    fail::remove(point);
    assert_eq!(deaths, 1, "{point} was not passed {pass} times");
}

/// Which passes of a point there are in a run.
fn passes(point: &str) -> std::ops::RangeInclusive<usize> {
    // The only open transaction to abort is that of the cancelled attempt.
    if point.ends_with("_abort") { 1..=1 } else { 1..=3 }
}

fn points(prefixes: &[&str]) -> Vec<(&'static str, usize)> {
    let chosen = FAIL_POINTS.iter().filter(|point| prefixes.iter().any(|prefix| point.starts_with(prefix)));
    chosen.flat_map(|point| passes(point).map(move |pass| (*point, pass))).collect()
}

fn all() -> Vec<u64> {
    (1..=LAST).collect()
}

/// [CHK-19] [TPL-10] [TPL-11]
#[tokio::test]
async fn two_phase_commit_is_exactly_once_whichever_point_the_process_dies_at() {
    let _scenario = FailScenario::setup();
    for (point, pass) in points(&["tpc::"]) {
        let target = transactions::Target::default();
        let start = async |store: &Store| {
            let newest = store.newest();
            let recovery = JobRecovery::<String>::read(newest.as_ref().map(|(.., state)| state)).unwrap();
            let checkpoint = newest.as_ref().map(|(checkpoint, ..)| *checkpoint);
            // Whatever is in the target is of an earlier process.
            let first = CheckpointId::new(u64::MAX, 1);
            recovery.fence(&mut target.sink(), first, checkpoint).await.unwrap();
            target.driver()
        };
        survive(point, pass, start).await;
        assert_eq!(target.visible(), all(), "death at {point}, pass {pass}");
        assert_eq!(target.left_over(), (vec![], vec![]), "death at {point}, pass {pass}");
    }
}

/// [CHK-19] [TPL-06] [TPL-09] A segment comes twice only when the process dies between its send and its marker.
#[tokio::test]
async fn write_ahead_repeats_only_between_send_and_marker() {
    let _scenario = FailScenario::setup();
    let window =
        ["wal::after_send", "wal::before_marker", "marker_file::before_write", "marker_file::before_rename"];
    for (point, pass) in points(&["wal::", "marker_file::"]) {
        let (target, folder) = (segments::Target::default(), TempDir::new().unwrap());
        let start = async |_: &Store| {
            let committer = FileCommitter::new(folder.path());
            WriteAheadDriver::<u64, _, _>::new(target.sink(), committer, segments::RETRY)
        };
        survive(point, pass, start).await;
        let mut sent = target.lock().sent.clone();
        let all_sent = sent.len();
        sent.dedup();
        let repeated = all_sent - sent.len();
        let numbers = sent.into_iter().flat_map(|(.., numbers)| numbers).collect::<Vec<_>>();
        assert_eq!(numbers, all(), "death at {point}, pass {pass}");
        assert_eq!(repeated, usize::from(window.contains(&point)), "death at {point}, pass {pass}");
    }
}

async fn committer(folder: &TempDir, first: CheckpointId) -> FileCommitter {
    let mut committer = FileCommitter::new(folder.path());
    committer.open(&context(0, 1, 1).sink).await.unwrap();
    committer.fence("sink", first).await.unwrap();
    committer
}

/// [TPL-07] [TPL-08] A task is cancelled while its marker is being written, and restarted; then the write comes to its end. The
/// markers that the restarted task has written meanwhile are all there.
#[tokio::test]
async fn a_late_write_of_a_cancelled_task_takes_no_later_marker_away() {
    let _scenario = FailScenario::setup();
    let folder = TempDir::new().unwrap();
    let marker = |sequence| Marker {
        job: String::from("job"),
        uid: String::from("sink"),
        subtask: 0,
        checkpoint: CheckpointId::new(1, sequence),
    };
    let mut first = committer(&folder, CheckpointId::new(1, 1)).await;
    first.commit(&marker(1)).await.unwrap();

    let (is_there, mut there) = tokio::sync::mpsc::unbounded_channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(Some(wait));
    fail::cfg_callback("marker_file::before_write", move || {
        // The first that comes here; all others pass.
        let Some(wait) = wait.lock().unwrap().take() else { return };
        is_there.send(()).unwrap();
        // Until the sender is gone.
        let _ = wait.recv();
    })
    .unwrap();
    let (second, third) = (marker(2), marker(3));
    let cancelled = tokio::spawn(async move { first.commit(&second).await });
    there.recv().await.unwrap();
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());

    let mut restarted = committer(&folder, CheckpointId::new(1, 3)).await;
    restarted.commit(&third).await.unwrap();
    let (is_renamed, mut renamed) = tokio::sync::mpsc::unbounded_channel();
    fail::cfg_callback("marker_file::after_rename", move || is_renamed.send(()).unwrap()).unwrap();
    drop(release);
    renamed.recv().await.unwrap();
    let mut last = committer(&folder, CheckpointId::new(2, 1)).await;
    for sequence in 1..=3 {
        assert!(last.is_committed(&marker(sequence)).await.unwrap(), "{sequence}");
    }
}

/// [CHK-19] [TPL-05]
#[tokio::test]
async fn an_idempotent_sink_converges_whichever_point_the_process_dies_at() {
    let _scenario = FailScenario::setup();
    for (point, pass) in points(&["idempotent::"]) {
        let sink = table::BufferingSink::default();
        survive(point, pass, async |_: &Store| IdempotentDriver::new(sink.clone())).await;
        let rows = sink.lock().rows.iter().copied().collect::<Vec<_>>();
        assert_eq!(rows, all(), "death at {point}, pass {pass}");
    }
}
