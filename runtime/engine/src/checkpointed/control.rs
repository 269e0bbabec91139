//! What the coordinator and the tasks of an attempt say to each other.

use std::collections::BTreeMap;

use levada_core::{Barrier, CheckpointId, State};
use tokio::sync::mpsc;

use crate::driver::{DriverTally, Pending};
use crate::error::JobError;

/// A task that takes part in checkpoints: a subtask of a source, of an async step or of a sink.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Participant {
    /// The operator's stable name.
    pub(crate) uid: String,
    pub(crate) subtask: u32,
}

/// What a task is told. Few and small, so the channels need no bound: a task that does not listen is ended with its attempt.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// All tasks of the attempt have opened: read, or call. Not for sinks.
    Start,
    /// Snapshot, and send a barrier down the line. Sources only.
    Inject {
        barrier: Barrier,
        /// Whether event time, and the stream, come to their end before it.
        drain: bool,
    },
    /// This checkpoint was triggered: its barrier is on its way. Async steps only.
    Expect(CheckpointId),
    /// This checkpoint and all before it are complete.
    Complete(CheckpointId),
    /// This checkpoint will not be complete.
    Aborted(CheckpointId),
    /// Nothing is left to do: close.
    Close,
}

/// What a task tells.
#[derive(Debug)]
pub(crate) enum Event {
    /// It has opened with the state that it was given.
    Opened,
    /// Its part of a checkpoint.
    Acked(Participant, CheckpointId, Box<Snapshot>),
    /// It has found out where it starts, and reads nothing before that is stored; it has snapshotted for this checkpoint last.
    StartsFound(Participant, Option<CheckpointId>),
    /// It has read, or written, the last record.
    Ended(Participant),
    /// It has done what a complete checkpoint asks of it.
    Handled(Participant, CheckpointId),
    /// It has closed its sink.
    Closed(Participant, DriverTally),
    /// It has failed.
    Failed(JobError),
}

/// What a task stores, and what a person may want to know of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) state: State,
    /// Where a source goes on, by split.
    pub(crate) positions: BTreeMap<String, u64>,
    /// What the state of a sink holds back.
    pub(crate) pending: Pending,
    /// Records that a sink has taken since it was opened.
    pub(crate) written: u64,
}

pub(crate) type Commands = mpsc::UnboundedReceiver<Command>;
pub(crate) type Events = mpsc::UnboundedSender<Event>;
