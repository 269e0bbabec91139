//! Drivers: what stands between a task of the engine and a sink written against one of the
//! [templates](levada_core::template).
//!
//! A task knows barriers and notifications; an author knows `upsert`, `send` or `commit`. A driver turns one into the
//! other and holds what must be stored in between. It does no scheduling: every method runs to its end before the next is
//! called, and a checkpoint's fate is told to it, not found out by it.
//!
//! ```text
//!   task            driver                                                  sink
//!   open(restored)  resolves what a checkpoint left pending ──────────────▶ open, commit, abort
//!   write(batch)    idempotent: through      write-ahead: kept as bytes     upsert / – / begin, write
//!   barrier(n)      the interval's end: flushed, closed or pre-committed ─▶ flush / – / pre_commit
//!      └─▶ State    what pends, stored with checkpoint n
//!   complete(n)     everything ≤ n becomes visible, in order ─────────────▶ – / send / commit
//!   finish          no record will follow; a last barrier and its notification will
//!   close           what is open is dropped, what pends stays ────────────▶ abort, close
//! ```
//!
//! Notifications may be lost, late, doubled and out of order: `complete(n)` stands for all checkpoints up to n, and one
//! that comes twice finds nothing to do. What stays pending is in the state of every later checkpoint.
//!
//! A job without checkpoints ends the same way: `finish`, a barrier whose state nobody stores, and its notification.

mod codec;
mod context;
mod error;
#[cfg(feature = "failpoints")]
mod failpoint;
mod idempotent;
mod pending;
mod retry;
mod tally;
mod two_phase;
mod write_ahead;

pub(crate) use two_phase::without_pending;
pub(crate) use write_ahead::stored_segments;

use std::fmt;
use std::future::Future;

use levada_core::template::WriteContext;
pub use levada_core::template::{Decision, decide};
use levada_core::{Batch, CheckpointId, State, Timestamp};

pub use context::{DriverContext, Restored};
pub use error::DriverError;
#[cfg(feature = "failpoints")]
pub use failpoint::FAIL_POINTS;
pub use idempotent::IdempotentDriver;
pub use pending::Pending;
pub use retry::Retry;
pub use tally::DriverTally;
pub use two_phase::{
    JobRecovery, LossPolicy, StoredTransaction, TimeoutTooShort, TwoPhaseDriver, TwoPhaseOptions,
    check_timeout,
};
pub use write_ahead::{FileCommitter, Inline, PieceError, PieceStore, WriteAheadDriver};

/// Drives a sink through the life of a task.
///
/// After an error the task ends: nothing but [`SinkDriver::close`] is called any more, and a new driver is opened with
/// the state of the latest complete checkpoint.
pub trait SinkDriver<T>: Send + fmt::Debug {
    /// Opens the sink and resolves what a checkpoint left pending. Called once, first.
    fn open(
        &mut self,
        ctx: DriverContext,
        restored: Option<Restored>,
    ) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Takes records over.
    fn write(
        &mut self,
        batch: Batch<T>,
        ctx: &WriteContext,
    ) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Ends the interval and returns what must be stored before the checkpoint may be complete. The ids rise.
    fn barrier(
        &mut self,
        checkpoint: CheckpointId,
        triggered_at: Timestamp,
    ) -> impl Future<Output = Result<State, DriverError>> + Send;

    /// Learns that a checkpoint is complete, and with it all earlier ones.
    fn complete(&mut self, checkpoint: CheckpointId) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Learns that a checkpoint will not be complete. Nothing is dropped: the source does not repeat those records, so the
    /// next complete checkpoint covers them.
    fn aborted(&mut self, checkpoint: CheckpointId) {
        tracing::debug!(%checkpoint, "checkpoint aborted; what it covered waits for the next one");
    }

    /// Learns that no record will follow. One more barrier comes, and its notification.
    fn finish(&mut self) -> impl Future<Output = Result<(), DriverError>> + Send;

    /// Drops what no barrier has covered, keeps what pends, and closes the sink. Called once, last, also after an error.
    fn close(&mut self) -> impl Future<Output = ()> + Send;

    /// Tells what the state of the last barrier holds back.
    fn pending(&self) -> Pending {
        Pending::default()
    }

    /// Tells what became of the records so far.
    fn tally(&self) -> DriverTally;
}
