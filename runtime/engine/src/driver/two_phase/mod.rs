//! Drives a sink whose transactions are committed in two phases.
//!
//! ```text
//!            first record      barrier n                 complete(n)
//!   none ──── begin ────▶ open ── pre_commit ──▶ pending[n] ── commit ──▶ gone
//!     ▲                    │ close: abort             │
//!     └────────────────────┘                          └─ in the state of n and of every later checkpoint until then
//! ```

mod entry;
mod recovery;
mod timeout;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use levada_core::template::{TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, ErrorChain, SinkError, State, Timestamp};

use self::entry::Entry;
pub use self::entry::StoredTransaction;
pub(crate) use self::entry::without_pending;
pub use self::recovery::JobRecovery;
pub use self::timeout::{TimeoutTooShort, check_timeout};
use super::SinkDriver;
use super::context::{DriverContext, Restored, Stage};
use super::error::DriverError;
use super::pending::Pending;
use super::retry::Retry;
use super::tally::DriverTally;
use crate::failpoint::fail_point;

/// What happens when a transaction is lost: its commit fails, and not because the target is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LossPolicy {
    /// The task fails, with the handle, the checkpoint and the number of records.
    #[default]
    Fail,
    /// After a restore a transaction older than its timeout is counted, logged as an error, and passed over.
    ContinueAfterTimeout,
    /// Every lost transaction is counted, logged as an error, and passed over.
    Continue,
}

impl LossPolicy {
    /// Tells whether a job goes on without a transaction of this age that a restore finds lost.
    pub(crate) fn tolerates_restored(self, age: Duration, timeout: Option<Duration>) -> bool {
        match self {
            LossPolicy::Fail => false,
            LossPolicy::ContinueAfterTimeout => timeout.is_some_and(|timeout| age > timeout),
            LossPolicy::Continue => true,
        }
    }
}

/// How a two-phase sink is driven.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoPhaseOptions {
    /// How often a commit is tried before the task fails.
    pub retry: Retry,
    /// What happens when a transaction is lost.
    pub on_loss: LossPolicy,
    /// The part of the timeout behind which a commit is warned about, from 0 (always) to 1; `None` for never.
    pub warn_at: Option<f64>,
}

impl Default for TwoPhaseOptions {
    fn default() -> Self {
        Self { retry: Retry::default(), on_loss: LossPolicy::default(), warn_at: Some(0.5) }
    }
}

/// Whether a transaction is committed by the task that wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Written,
    Restored,
}

/// Drives a [`TwoPhaseCommitSink`].
///
/// What is done once a job, before any subtask opens, is in [`JobRecovery`].
pub struct TwoPhaseDriver<T, S: TwoPhaseCommitSink<T>> {
    sink: S,
    options: TwoPhaseOptions,
    stage: Stage,
    /// The open transaction. Its checkpoint is the next one, if none is left out.
    current: Option<StoredTransaction<S::Handle>>,
    /// Pre-committed, in the order of their checkpoints.
    pending: VecDeque<StoredTransaction<S::Handle>>,
    tally: DriverTally,
}

impl<T, S: TwoPhaseCommitSink<T>> fmt::Debug for TwoPhaseDriver<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoPhaseDriver")
            .field("sink", &self.sink)
            .field("current", &self.current)
            .field("pending", &self.pending)
            .finish_non_exhaustive()
    }
}

impl<T: Send, S: TwoPhaseCommitSink<T>> TwoPhaseDriver<T, S> {
    /// Drives `sink`.
    pub fn new(sink: S, options: TwoPhaseOptions) -> Self {
        Self {
            sink,
            options,
            stage: Stage::default(),
            current: None,
            pending: VecDeque::new(),
            tally: DriverTally::default(),
        }
    }

    async fn begin(&mut self) -> Result<StoredTransaction<S::Handle>, DriverError> {
        let name = self.name()?;
        // Before the target's own clock starts, so that the age is never told too low.
        let begun_at = self.stage.context()?.clock.now();
        fail_point!("tpc::before_begin");
        let handle = self.sink.begin(&name).await.map_err(DriverError::sink("begin a transaction"))?;
        fail_point!("tpc::after_begin");
        Ok(StoredTransaction { handle, checkpoint: name.checkpoint, begun_at, records: 0 })
    }

    /// Names a transaction that begins now.
    fn name(&self) -> Result<TransactionName, DriverError> {
        let subtask = self.stage.context()?.sink.subtask;
        Ok(TransactionName { subtask, checkpoint: self.stage.next_checkpoint()? })
    }

    /// Pre-commits the open transaction, which pends from then on.
    async fn pre_commit(&mut self, checkpoint: CheckpointId) -> Result<(), DriverError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        fail_point!("tpc::before_pre_commit");
        let pre_committed = self.sink.pre_commit(&mut current.handle).await;
        pre_committed.map_err(DriverError::sink("pre-commit a transaction"))?;
        fail_point!("tpc::after_pre_commit");
        current.checkpoint = checkpoint;
        self.pending.extend(self.current.take());
        Ok(())
    }

    /// Commits a transaction, or passes over its loss if that is the policy.
    async fn settle(
        &mut self,
        transaction: &StoredTransaction<S::Handle>,
        origin: Origin,
    ) -> Result<(), DriverError> {
        let age = self.stage.context()?.clock.now().since(transaction.begun_at);
        self.warn_if_old(transaction, age);
        fail_point!("tpc::before_commit");
        let outcome = self.commit(&transaction.handle).await;
        fail_point!("tpc::after_commit");
        match outcome {
            Ok(()) => {
                self.tally.published += transaction.records;
                Ok(())
            }
            Err(cause) if cause.class.is_retriable() => Err(self.uncommitted(transaction, cause)),
            Err(cause) => self.lose(transaction, origin, age, cause),
        }
    }

    /// Commits with back-off. An error is the last attempt's.
    async fn commit(&mut self, handle: &S::Handle) -> Result<(), SinkError> {
        let mut pauses = self.options.retry.pauses();
        loop {
            let Err(error) = self.sink.commit(handle).await else { return Ok(()) };
            if !error.class.is_retriable() {
                return Err(error);
            }
            tracing::warn!(?handle, error = %ErrorChain(&error), "commit failed");
            if !pauses.wait().await {
                return Err(error);
            }
        }
    }

    fn warn_if_old(&mut self, transaction: &StoredTransaction<S::Handle>, age: Duration) {
        let (Some(ratio), Some(timeout)) = (self.options.warn_at, self.sink.transaction_timeout()) else {
            return;
        };
        if timeout::is_past(age, timeout, ratio) {
            self.tally.timeout_warnings += 1;
            let StoredTransaction { handle, checkpoint, .. } = transaction;
            tracing::warn!(?handle, %checkpoint, ?age, ?timeout, "transaction is close to its timeout or past it");
        }
    }

    fn uncommitted(&self, transaction: &StoredTransaction<S::Handle>, cause: SinkError) -> DriverError {
        DriverError::Uncommitted {
            handle: format!("{:?}", transaction.handle),
            checkpoint: transaction.checkpoint,
            records: transaction.records,
            attempts: self.options.retry.attempts.max(1),
            cause: Box::new(cause),
        }
    }

    fn lose(
        &mut self,
        transaction: &StoredTransaction<S::Handle>,
        origin: Origin,
        age: Duration,
        cause: SinkError,
    ) -> Result<(), DriverError> {
        let StoredTransaction { handle, checkpoint, records, .. } = transaction;
        if !self.tolerates_loss(origin, age) {
            let (handle, cause) = (format!("{handle:?}"), Box::new(cause));
            return Err(DriverError::Lost { handle, checkpoint: *checkpoint, records: *records, cause });
        }
        self.tally.lost += records;
        self.tally.lost_transactions += 1;
        let error = ErrorChain(&cause);
        tracing::error!(?handle, %checkpoint, records, ?age, %error, "transaction lost with its records; going on by policy");
        Ok(())
    }

    fn tolerates_loss(&self, origin: Origin, age: Duration) -> bool {
        match origin {
            Origin::Restored => self.options.on_loss.tolerates_restored(age, self.sink.transaction_timeout()),
            Origin::Written => self.options.on_loss == LossPolicy::Continue,
        }
    }

    /// Resolves what one earlier subtask stored: first what waits for its commit, then what was open.
    async fn resolve(&mut self, entry: &Entry<S::Handle>) -> Result<(), DriverError> {
        for pending in &entry.pending {
            self.tally.restored += pending.records;
            self.settle(pending, Origin::Restored).await?;
        }
        if let Some(open) = &entry.open {
            self.abort(&open.handle).await.map_err(DriverError::sink("abort a transaction"))?;
        }
        Ok(())
    }

    async fn abort(&mut self, handle: &S::Handle) -> Result<(), SinkError> {
        fail_point!("tpc::before_abort");
        let aborted = self.sink.abort(handle).await;
        fail_point!("tpc::after_abort");
        aborted
    }
}

impl<T: Send, S: TwoPhaseCommitSink<T>> SinkDriver<T> for TwoPhaseDriver<T, S> {
    async fn open(&mut self, ctx: DriverContext, restored: Option<Restored>) -> Result<(), DriverError> {
        let entries = match &restored {
            Some(restored) => Entry::all_of(&restored.state)?,
            None => Vec::new(),
        };
        self.sink.open(ctx.sink.clone()).await.map_err(DriverError::sink("open"))?;
        self.stage.open(ctx);
        for entry in &entries {
            self.resolve(entry).await?;
        }
        let contexts = entries.into_iter().filter_map(|entry| entry.context).collect::<Vec<_>>();
        self.sink.restore_context(&contexts).map_err(DriverError::sink("take its context back"))?;
        let first = self.name()?;
        self.sink.will_begin(&first);
        Ok(())
    }

    async fn write(&mut self, batch: Batch<T>, ctx: &WriteContext) -> Result<(), DriverError> {
        self.stage.writing()?;
        let records = batch.len() as u64;
        if records == 0 {
            return Ok(());
        }
        let open = match self.current.take() {
            Some(open) => open,
            None => self.begin().await?,
        };
        // Put back before the write: also after an error it is still to be aborted.
        let current = self.current.insert(open);
        current.records += records;
        let written = self.sink.write(&mut current.handle, batch, ctx).await;
        written.map_err(DriverError::sink("write"))?;
        self.tally.written += records;
        Ok(())
    }

    async fn barrier(
        &mut self,
        checkpoint: CheckpointId,
        _triggered_at: Timestamp,
    ) -> Result<State, DriverError> {
        self.stage.barrier(checkpoint)?;
        self.pre_commit(checkpoint).await?;
        let pending = self.pending.iter().cloned().collect();
        Ok(Entry { open: None, pending, context: self.sink.context() }.into_state())
    }

    async fn complete(&mut self, checkpoint: CheckpointId) -> Result<(), DriverError> {
        while let Some(first) = self.pending.front()
            && first.checkpoint <= checkpoint
        {
            let first = first.clone();
            self.settle(&first, Origin::Written).await?;
            self.pending.pop_front();
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.stage.finish();
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(current) = self.current.take()
            && let Err(error) = self.abort(&current.handle).await
        {
            let handle = &current.handle;
            tracing::warn!(?handle, error = %ErrorChain(&error), "open transaction not aborted; left to its timeout");
        }
        self.sink.close().await;
    }

    fn pending(&self) -> Pending {
        let records = self.pending.iter().map(|transaction| transaction.records).sum();
        Pending { transactions: self.pending.len() as u64, records, ..Pending::default() }
    }

    fn tally(&self) -> DriverTally {
        self.tally
    }
}
