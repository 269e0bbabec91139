//! A sink whose records wait in the checkpoint store until their checkpoint is complete.

use std::fmt;
use std::future::Future;

use crate::checkpoint::CheckpointId;
use crate::clock::Timestamp;
use crate::error::SinkError;
use crate::sink::{SinkContext, WriteOrder};

/// Names a segment for good: the same after a restart, a new submission of the job and a change of parallelism.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marker {
    /// The job's name.
    pub job: String,
    /// The sink's uid.
    pub uid: String,
    /// The subtask that took the records; after a change of parallelism another one may send them.
    pub subtask: u32,
    /// The checkpoint that covers them.
    pub checkpoint: CheckpointId,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.job, self.uid, self.subtask, self.checkpoint)
    }
}

/// The records that one subtask took between two checkpoints, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<T> {
    /// Its name.
    pub marker: Marker,
    /// When the checkpoint was triggered: the same in every repetition, so that what depends on it is.
    pub time: Timestamp,
    /// The records.
    pub records: Vec<T>,
}

/// Sends segments whose checkpoint is complete, in the order of the checkpoints.
pub trait WriteAheadSink<T>: Send + fmt::Debug {
    /// Connects and checks the target. Called once, first.
    fn open(&mut self, ctx: SinkContext) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Sends a whole segment; `true` means that all of it is durable in the target. After `false` or an error the segment is
    /// sent again with the next complete checkpoint, and those behind it wait.
    ///
    /// # Errors
    /// Two classes fail the task instead, as waiting does not help: [`ErrorClass::BadRecord`](crate::ErrorClass::BadRecord)
    /// and [`ErrorClass::Fenced`](crate::ErrorClass::Fenced). The segment stays in the checkpoint.
    ///
    /// A segment may come twice: after a crash between its sending and the commit of its marker. A target that can commit
    /// the marker with the data writes it here, and its committer [shares the transaction](CheckpointCommitter::shares_transaction).
    fn send(&mut self, segment: &Segment<T>) -> impl Future<Output = Result<bool, SinkError>> + Send;

    /// Tells what the order of records means to its target. Asked before it is opened, maybe of a sink that never is.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::ByOwnKey
    }

    /// Releases everything. Called once, last, also after an error.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Remembers which segments were sent.
pub trait CheckpointCommitter: Send + fmt::Debug {
    /// Connects. Called once, first. Another subtask than the one of `ctx` may have written a marker that is asked for.
    fn open(&mut self, ctx: &SinkContext) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Learns the sink's uid and the first checkpoint that may follow, which is above that of every earlier opening: called
    /// once, after [`CheckpointCommitter::open`] and before anything is asked. All subtasks of one opening are given the same.
    ///
    /// A committer that can keeps every earlier opening, be it of a process that was stopped and wakes up later, from
    /// committing a marker from now on. Without it such a process could send a segment whose marker was forgotten.
    ///
    /// # Errors
    /// [`ErrorClass::Fenced`](crate::ErrorClass::Fenced) when a later opening was here first.
    fn fence(
        &mut self,
        uid: &str,
        first: CheckpointId,
    ) -> impl Future<Output = Result<(), SinkError>> + Send {
        let _ = (uid, first);
        async { Ok(()) }
    }

    /// Tells whether a segment was committed: asked before it is sent.
    fn is_committed(&mut self, marker: &Marker) -> impl Future<Output = Result<bool, SinkError>> + Send;

    /// Notes durably that a segment was sent. Not called for a committer that shares the sink's transaction.
    fn commit(&mut self, marker: &Marker) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Learns that these segments are in no checkpoint any more from which the job goes on by itself, so that their markers
    /// need not be kept. Others must be: after a change of parallelism the segments of one subtask are sent by several,
    /// and a later marker does not mean that all earlier ones are there.
    fn forget(&mut self, markers: &[Marker]) -> impl Future<Output = Result<(), SinkError>> + Send {
        let _ = markers;
        async { Ok(()) }
    }

    /// Tells whether [`WriteAheadSink::send`] commits the marker together with the data, which makes it exactly once.
    fn shares_transaction(&self) -> bool {
        false
    }
}
