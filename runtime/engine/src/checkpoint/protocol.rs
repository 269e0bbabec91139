//! What the coordinator is told, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_core::{Barrier, BarrierKind, CheckpointId, Timestamp};
use thiserror::Error;

/// Names a task of the job: counts over all stages and subtasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubtaskId(pub u32);

/// Names a request for a checkpoint, so that its answer finds whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// When checkpoints are taken, and how many may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// From one periodic checkpoint to the next; `None`: only on request, and at the end of a bounded read.
    pub interval: Option<Duration>,
    /// From the completion of a checkpoint to the next periodic one. More than zero means that no two are in flight.
    pub min_pause: Duration,
    /// How long after its trigger a checkpoint that not every task has acknowledged is given up.
    pub timeout: Duration,
    /// How many may be in flight when a periodic or a requested one begins; at least 1. Savepoints and stops do not wait.
    pub max_concurrent: usize,
    /// How many checkpoints may fail, one after the other, before the job does.
    pub tolerable_failures: u32,
}

impl Default for CheckpointSettings {
    /// No interval, no pause, 10 minutes, one in flight, no failure.
    fn default() -> Self {
        Self {
            interval: None,
            min_pause: Duration::ZERO,
            timeout: Duration::from_secs(600),
            max_concurrent: 1,
            tolerable_failures: 0,
        }
    }
}

impl CheckpointSettings {
    pub(super) fn slots(&self) -> usize {
        if self.min_pause.is_zero() { self.max_concurrent.max(1) } else { 1 }
    }
}

/// What somebody can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// A checkpoint as soon as one may begin. Requests that wait together are answered by one.
    Checkpoint,
    /// A savepoint, at once. The job goes on.
    Savepoint,
    /// A last checkpoint, at once; then the job ends.
    Stop,
    /// A savepoint, at once; then the job ends.
    StopWithSavepoint {
        /// Whether event time comes to its end first; the savepoint must not be continued from then.
        drain: bool,
    },
}

/// Why a checkpoint was taken, which also tells what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointKind {
    /// The interval was over.
    Periodic,
    /// [`Command::Checkpoint`].
    Requested,
    /// A source has found out where it starts, and reads nothing before that is stored: found out again, it might be later.
    Starts,
    /// Every task has come to the end of its input.
    Final,
    /// [`Command::Savepoint`]. Nobody is told: the job would restart from an earlier checkpoint, so nothing may be committed
    /// on its account. It takes no part in the count of failures and neither subsumes others nor is subsumed.
    Savepoint,
    /// [`Command::Stop`].
    Stop,
    /// [`Command::StopWithSavepoint`]. Its side effects are committed, so its entry must be one that a restart finds.
    StopWithSavepoint {
        /// Whether event time comes to its end first.
        drain: bool,
    },
}

impl CheckpointKind {
    /// Tells whether it is kept until the user deletes it.
    pub fn is_savepoint(self) -> bool {
        matches!(self, CheckpointKind::Savepoint | CheckpointKind::StopWithSavepoint { .. })
    }

    /// Tells whether the job ends with it.
    pub fn is_stop(self) -> bool {
        matches!(self, CheckpointKind::Stop | CheckpointKind::StopWithSavepoint { .. })
    }

    /// Tells whether side effects are committed on its account.
    pub fn is_notified(self) -> bool {
        self != CheckpointKind::Savepoint
    }

    pub(crate) fn is_drain(self) -> bool {
        matches!(self, CheckpointKind::StopWithSavepoint { drain: true })
    }

    pub(super) fn barrier(self, checkpoint: CheckpointId) -> Barrier {
        let kind = if self.is_stop() { BarrierKind::Stop } else { BarrierKind::Checkpoint };
        Barrier { checkpoint, kind, triggered_at: Timestamp::default() }
    }
}

/// Something that happened. `P` refers to durable parts of state; what it is, is the store's business.
///
/// What the tasks of before a restart said must not arrive after [`Input::Restarted`], except acknowledgements: their
/// parts are still to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input<P> {
    /// The time asked for by [`Action::ScheduleTick`] has come. One too many does no harm.
    Tick,
    /// Somebody asks for a checkpoint.
    Trigger {
        /// Who.
        request: RequestId,
        /// For what.
        command: Command,
    },
    /// A task has snapshotted, and what it stored is durable.
    Acked {
        /// The task.
        subtask: SubtaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it stored.
        parts: P,
    },
    /// A task will not acknowledge a checkpoint.
    Declined {
        /// The task.
        subtask: SubtaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: DeclineReason,
    },
    /// A source has found out where it starts, and reads nothing before a checkpoint is complete in which that is.
    StartsFound {
        /// The task.
        subtask: SubtaskId,
        /// The last checkpoint that the task had snapshotted for before: it is not in that one.
        after: Option<CheckpointId>,
    },
    /// A task has come to the end of its input and has flushed; it waits for one more complete checkpoint.
    EndReached {
        /// The task.
        subtask: SubtaskId,
    },
    /// A task has closed, after the notification that covers all it did. It takes no part any more.
    Finished {
        /// The task.
        subtask: SubtaskId,
    },
    /// The entry of a manifest was created.
    EntryWritten(
        /// The checkpoint.
        CheckpointId,
    ),
    /// The entry of a manifest was not created, and will not be: when the answer was lost, the entry was looked for.
    EntryFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        error: String,
    },
    /// Another process has created an entry in this one's place.
    TakenOver,
    /// A task has done what follows from a complete checkpoint, and from every one before it.
    Handled {
        /// The task.
        subtask: SubtaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A task could not do what follows from a complete checkpoint.
    HandlerFailed {
        /// The task.
        subtask: SubtaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        error: String,
    },
    /// A task has failed; all of them are being ended.
    TasksFailed,
    /// The tasks run again, restored from what the store had after [`Action::Settled`].
    Restarted {
        /// All of them.
        subtasks: Vec<SubtaskId>,
    },
}

/// Why a task will not acknowledge a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeclineReason {
    /// Its state could not be taken or stored.
    #[error("{0}")]
    Failed(String),
    /// A newer one took its place while barriers were aligned. Not counted as a failure.
    #[error("a newer checkpoint took its place")]
    Superseded,
    /// The task is not there yet, or not any more. Not counted as a failure.
    #[error("the task does not run")]
    NotRunning,
}

/// What is to be done, in the order in which it is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<P> {
    /// Send a barrier into every running source, and into every running task whose inputs have all closed.
    Inject {
        /// The barrier, to be stamped with the time. With [`BarrierKind::Stop`] nothing is read behind it.
        barrier: Barrier,
        /// Whether the maximum watermark and the end of the input go before it.
        drain: bool,
    },
    /// Create the entry of a manifest, and report [`Input::EntryWritten`], [`Input::EntryFailed`] or [`Input::TakenOver`].
    /// One at a time.
    WriteManifest {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What it is.
        kind: CheckpointKind,
        /// What each task stored.
        parts: BTreeMap<SubtaskId, P>,
        /// Tasks that had closed: their last state is in an earlier manifest.
        finished: BTreeSet<SubtaskId>,
    },
    /// Tell every running task that a checkpoint, and every one before it, is complete.
    NotifyComplete(
        /// The checkpoint.
        CheckpointId,
    ),
    /// Tell every running task that a checkpoint will not be complete.
    NotifyAborted(
        /// The checkpoint.
        CheckpointId,
    ),
    /// Delete parts that no manifest will name.
    DiscardParts {
        /// The checkpoint they were stored for.
        checkpoint: CheckpointId,
        /// The parts.
        parts: Vec<P>,
    },
    /// Note that everything that follows from a checkpoint, and from those before it, is done.
    Resolved(
        /// The checkpoint.
        CheckpointId,
    ),
    /// Tell whoever asked what became of it. Once for each request.
    Answer {
        /// Who.
        request: RequestId,
        /// The complete checkpoint, or why there is none.
        outcome: Result<CheckpointId, AbortReason>,
    },
    /// End all tasks, and restart them if the restart strategy says so, but not before [`Action::Settled`].
    FailJob(
        /// Why.
        FailReason,
    ),
    /// After a failure: no entry is being written any more, so the store now tells which checkpoint is the latest.
    Settled,
    /// The job has come to a good end.
    Done {
        /// The last checkpoint whose side effects are committed.
        last: Option<CheckpointId>,
    },
    /// Another process has taken over: end this one, with no side effect.
    EndSelf,
    /// Send [`Input::Tick`] at this time; replaces the time asked for before.
    ScheduleTick(
        /// When.
        Duration,
    ),
}

/// Why a checkpoint will not be complete, or was not begun.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AbortReason {
    /// A task declined.
    #[error("task {} declined it", subtask.0)]
    Declined {
        /// The task.
        subtask: SubtaskId,
        /// Why.
        #[source]
        reason: DeclineReason,
    },
    /// Not every task has acknowledged it in time.
    #[error("it expired before every task had acknowledged it")]
    Expired,
    /// The store could not create its entry.
    #[error("its entry could not be written: {0}")]
    EntryFailed(String),
    /// A later one is complete.
    #[error("checkpoint {0} is complete and covers it")]
    Subsumed(CheckpointId),
    /// The job failed meanwhile.
    #[error("the job failed")]
    JobFailed,
    /// The job came to its end meanwhile.
    #[error("the job has ended")]
    JobEnded,
    /// The job stops with another checkpoint.
    #[error("the job is stopping")]
    Stopping,
    /// No task runs.
    #[error("the job does not run")]
    NotRunning,
    /// Another process has taken over.
    #[error("another process has taken over")]
    TakenOver,
}

impl AbortReason {
    /// Tells whether it counts as a failure of the checkpoint, and not as something that happens in good order.
    pub fn is_failure(&self) -> bool {
        match self {
            AbortReason::Declined { reason, .. } => matches!(reason, DeclineReason::Failed(_)),
            AbortReason::Expired | AbortReason::EntryFailed(_) => true,
            _ => false,
        }
    }
}

/// Why the job must fail.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FailReason {
    /// More checkpoints failed one after the other than are tolerated.
    #[error("{failures} checkpoints failed one after the other, the last of them {checkpoint}")]
    TooManyFailures {
        /// How many.
        failures: u32,
        /// The last one.
        checkpoint: CheckpointId,
        /// Why that one.
        #[source]
        reason: AbortReason,
    },
    /// The checkpoint to stop with failed. The sources have stopped, so the job cannot go on.
    #[error("checkpoint {checkpoint} failed, with which the job was to stop")]
    StopFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        #[source]
        reason: AbortReason,
    },
    /// The checkpoint at the end of a bounded read failed, and there is no interval after which there would be another.
    #[error("checkpoint {checkpoint} failed, with which the job was to end")]
    FinalFailed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        #[source]
        reason: AbortReason,
    },
    /// A task could not do what follows from a complete checkpoint. The checkpoint stays complete.
    #[error("task {} failed to handle the completion of checkpoint {checkpoint}: {error}", subtask.0)]
    HandlerFailed {
        /// The task.
        subtask: SubtaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        error: String,
    },
    /// The tasks were restored while an entry was still being written: they may have missed it.
    #[error("the tasks were restored before it was known whether checkpoint {0} is complete")]
    RestoredTooEarly(CheckpointId),
}
