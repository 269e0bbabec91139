//! The engine's driver over a sink and a committer, and checkpoints by hand.

use std::sync::Arc;

use levada_core::state::redistribute;
use levada_core::template::WriteContext;
use levada_core::{CheckpointId, Keyed, SinkContext, State, SystemClock, Timestamp};
use levada_engine::driver::{DriverContext, DriverError, Restored, Retry, SinkDriver, WriteAheadDriver};
use levada_postgres::{PostgresCommitter, PostgresSinkConfig, PostgresWriteAhead};

use crate::scene::{JOB, batch, keyless, number};

pub(crate) const UID: &str = "log";
pub(crate) const LOG: &str = "create table log (a int)";

pub(crate) type Driver = WriteAheadDriver<Keyed, PostgresWriteAhead, PostgresCommitter>;

pub(crate) fn id(attempt: u64, sequence: u64) -> CheckpointId {
    CheckpointId::new(attempt, sequence)
}

pub(crate) fn context(subtask: u32, parallelism: u32, attempt: u64) -> DriverContext {
    DriverContext {
        sink: SinkContext { job: JOB.to_owned(), subtask, parallelism },
        uid: UID.to_owned(),
        first: id(attempt, 0),
        clock: Arc::new(SystemClock),
    }
}

pub(crate) fn driver(config: PostgresSinkConfig) -> Driver {
    let (sink, committer) = PostgresWriteAhead::with_committer(config);
    WriteAheadDriver::new(sink, committer, Retry { attempts: 1, ..Retry::default() })
}

pub(crate) fn restored(checkpoint: CheckpointId, state: &State) -> Option<Restored> {
    Some(Restored { checkpoint, state: state.clone() })
}

/// Opens a driver in an attempt that has nothing to restore.
pub(crate) async fn first(config: PostgresSinkConfig) -> Driver {
    let mut driver = driver(config);
    driver.open(context(0, 1, 1), None).await.expect("open");
    driver
}

/// Opens a driver of one subtask in another attempt, with a state of checkpoint 1-1.
pub(crate) async fn again(config: PostgresSinkConfig, attempt: u64, state: &State) -> Driver {
    let mut driver = driver(config);
    driver.open(context(0, 1, attempt), restored(id(1, 1), state)).await.expect("open");
    driver
}

/// Writes rows of one column.
pub(crate) async fn write(driver: &mut Driver, numbers: impl IntoIterator<Item = u64>) {
    let change = |n: u64| keyless(&[("a", number(&n.to_string()))]);
    write_changes(driver, numbers.into_iter().map(change).collect()).await;
}

pub(crate) async fn write_changes(driver: &mut Driver, changes: Vec<Keyed>) {
    let ctx = WriteContext { processing_time: Timestamp(0), watermark: Timestamp(0) };
    driver.write(batch(0, changes).0, &ctx).await.expect("write");
}

pub(crate) async fn barrier(driver: &mut Driver, checkpoint: CheckpointId) -> State {
    driver.barrier(checkpoint, Timestamp(1)).await.expect("barrier")
}

/// Writes numbers, and ends the interval with a checkpoint.
pub(crate) async fn segment(
    driver: &mut Driver,
    checkpoint: CheckpointId,
    numbers: impl IntoIterator<Item = u64>,
) -> State {
    write(driver, numbers).await;
    barrier(driver, checkpoint).await
}

pub(crate) async fn complete(driver: &mut Driver, checkpoint: CheckpointId) -> Result<(), DriverError> {
    driver.complete(checkpoint).await
}

pub(crate) fn deal(states: &[State], parallelism: u32) -> Vec<State> {
    redistribute(states.to_vec(), parallelism).expect("states of one kind")
}

pub(crate) fn error_chain(error: &DriverError) -> String {
    levada_core::ErrorChain(error).to_string()
}

/// The rows and the markers, as others see them.
pub(crate) const ROWS: &str = "select a from log order by 1";
pub(crate) const MARKERS: &str = "select job, uid, subtask, attempt || '-' || sequence from levada.markers order by attempt, sequence, subtask";
