//! What a job with checkpoints is doing, for whoever watches it.

use std::time::Duration;

use levada_core::CheckpointId;

/// What a job with checkpoints is doing.
///
/// ```text
///  Starting ─▶ Recovering ─▶ Running ─┬─▶ Stopping ─▶ Ended
///                  ▲                  ├─▶ Ended            a bounded source has come to its end
///                  └── Restarting ◀───┘                    and from every state to Ended, when the job gives up
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobState {
    /// It takes the store.
    Starting,
    /// It finds what to go on from, brings the sinks' targets there, and opens its tasks.
    Recovering,
    /// Its tasks run.
    Running {
        /// The last checkpoint that is complete, if one is since the start.
        last: Option<CompleteCheckpoint>,
        /// How often it was restarted.
        restarts: u32,
    },
    /// It has stopped reading, and takes the checkpoint to end with.
    Stopping {
        /// That checkpoint.
        checkpoint: CheckpointId,
    },
    /// It has failed, and waits for its restart.
    Restarting {
        /// Why it failed, with everything behind it.
        cause: String,
        /// How long it waits.
        after: Duration,
        /// How often it was restarted, with this time.
        restarts: u32,
    },
    /// It has come to its end; [`CheckpointedHandle::wait`](super::CheckpointedHandle::wait) tells which.
    Ended {
        /// Why it gave up, with everything behind it; nothing when it ended well.
        cause: Option<String>,
    },
}

impl JobState {
    /// Returns the last complete checkpoint of a running job.
    pub fn last(&self) -> Option<CompleteCheckpoint> {
        match self {
            JobState::Running { last, .. } => *last,
            _ => None,
        }
    }
}

/// A checkpoint that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompleteCheckpoint {
    /// Its id.
    pub id: CheckpointId,
    /// From its trigger to its entry in the log.
    pub duration: Duration,
}
