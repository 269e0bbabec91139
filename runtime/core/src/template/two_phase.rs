//! A sink whose transactions are committed in two phases, around a checkpoint.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::WriteContext;
use crate::batch::Batch;
use crate::checkpoint::CheckpointId;
use crate::error::SinkError;
use crate::sink::{SinkContext, WriteOrder};
use crate::state::Storable;

/// A name for a transaction that no other has, in this attempt or an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TransactionName {
    /// The subtask that writes it.
    pub subtask: u32,
    /// The checkpoint that will cover it, if none is left out: the next one when it was begun. If some are left out, a
    /// later one covers it, and no transaction is named after these.
    pub checkpoint: CheckpointId,
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.checkpoint, self.subtask)
    }
}

/// What became of a transaction that was pre-committed before a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// It waits for its commit.
    Pending,
    /// It waits for its commit, and the target may drop it before that comes: too little of its timeout is left.
    Expiring,
    /// Its records are visible.
    Committed,
    /// Its records are gone.
    Aborted,
    /// The target does not tell.
    Unknown,
}

/// Writes records into transactions that become visible when their checkpoint is complete.
///
/// ```text
///  begin ─ write … write ─ pre_commit ─┬─ checkpoint complete ─ commit
///    lazily, with the first record     └─ crash, restore ────── commit, from another process, by the stored handle
///  begin ─ write … crash, restore ─ abort
/// ```
pub trait TwoPhaseCommitSink<T>: Send + fmt::Debug {
    /// Names a transaction; stored with the checkpoint, and all that is left of it after a crash.
    type Handle: Storable + Clone + fmt::Debug + Send + Sync + 'static;

    /// Connects and checks the target. Called once, first.
    fn open(&mut self, ctx: SinkContext) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Told once, behind [`open`](TwoPhaseCommitSink::open) and the end of whatever was restored, and before the first
    /// record: how the first transaction will be named if it is begun before the next barrier, and under which attempt all
    /// of them will be. What they need can be made ready from here on, in the background.
    fn will_begin(&mut self, first: &TransactionName) {
        let _ = first;
    }

    /// Begins a transaction, with the first record that goes into it.
    fn begin(
        &mut self,
        name: &TransactionName,
    ) -> impl Future<Output = Result<Self::Handle, SinkError>> + Send;

    /// Writes records into the open transaction.
    fn write(
        &mut self,
        handle: &mut Self::Handle,
        batch: Batch<T>,
        ctx: &WriteContext,
    ) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Makes everything written durable, and invisible still. After it, `commit` must be able to succeed at any time, from
    /// any process, by the stored handle alone.
    fn pre_commit(&mut self, handle: &mut Self::Handle)
    -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Makes a pre-committed transaction visible. Must succeed when it is visible already.
    ///
    /// # Errors
    /// Those that are [retriable](crate::ErrorClass::is_retriable) are tried again; every other class means that the
    /// transaction is lost.
    fn commit(&mut self, handle: &Self::Handle) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Drops a transaction. Must succeed when it is gone already, or never was.
    fn abort(&mut self, handle: &Self::Handle) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Tells what became of transactions, in the order of `handles`; `None` when the target cannot be asked. Called once a
    /// job, after a crash and before anything is committed.
    fn inspect(
        &mut self,
        handles: &[Self::Handle],
    ) -> impl Future<Output = Result<Option<Vec<Fate>>, SinkError>> + Send {
        let _ = handles;
        async { Ok(None) }
    }

    /// Ends whatever earlier attempts have left open or pre-committed and none of `kept` names. Called once a job, at each
    /// start, before any subtask opens; those kept are committed by the subtasks then.
    ///
    /// Earlier is what was [named](TransactionName::checkpoint) below `first`, the first checkpoint that this start may take.
    /// Everything from `first` on must be left alone: a process may stand still just before this call, be taken over, and
    /// make the call when it wakes up. Neither its lease nor any other condition of the store holds it back then, and what it
    /// finds beside `kept` is what the later attempt has pre-committed for its own complete checkpoints. So the target has to
    /// tell of each transaction by which checkpoint it was named; ids compare by attempt, then by sequence, as numbers.
    fn fence(
        &mut self,
        first: CheckpointId,
        kept: &[Self::Handle],
    ) -> impl Future<Output = Result<(), SinkError>> + Send {
        let _ = (first, kept);
        async { Ok(()) }
    }

    /// Returns what this subtask stores beside its transactions, such as names that it has in use. Called at each
    /// barrier, after the pre-commit.
    fn context(&self) -> Option<Vec<u8>> {
        None
    }

    /// Takes back what [`TwoPhaseCommitSink::context`] has stored, once the transactions beside it are resolved: one for
    /// each earlier subtask that was dealt to this one, in their order, so none or several after a change of parallelism.
    ///
    /// # Errors
    /// The stored bytes are not understood.
    fn restore_context(&mut self, contexts: &[Vec<u8>]) -> Result<(), SinkError> {
        let _ = contexts;
        Ok(())
    }

    /// Returns how many subtasks of a process write; `None` for each. Asked at each start, of a sink that is not open. What the
    /// other subtasks have made goes to the first ones; all take part in every checkpoint.
    fn writers(&self) -> Option<u32> {
        None
    }

    /// Returns how long a transaction may stay open before the target drops it; `None` for ever.
    fn transaction_timeout(&self) -> Option<Duration> {
        None
    }

    /// Tells what the order of records means to its target. Asked before it is opened, maybe of a sink that never is.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::ByOwnKey
    }

    /// Releases everything. Called once, last, also after an error.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
