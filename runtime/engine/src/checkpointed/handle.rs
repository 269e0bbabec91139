//! The handle of a running job with checkpoints, and what the job came to.

use std::collections::BTreeMap;

use levada_core::CheckpointId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::entry::savepoint_name;
use super::job_state::JobState;
use super::shell::Request;
use crate::async_io::CallStatus;
use crate::checkpoint::{AbortReason, Command};
use crate::driver::DriverTally;
use crate::error::JobError;
use crate::store::Store;
use crate::time::TimeStatus;

/// What a job with checkpoints came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointedReport {
    /// The number of the lease under which it ran.
    pub attempt: u64,
    /// The last checkpoint whose side effects are committed.
    pub last: Option<CheckpointId>,
    /// How often it was restarted.
    pub restarts: u32,
    /// The savepoint that it was stopped with.
    pub savepoint: Option<TakenSavepoint>,
    /// What became of the records of each sink, summed over its subtasks and over restarts: what was restored is counted
    /// each time, and losses that a policy allows are told here.
    pub sinks: BTreeMap<String, DriverTally>,
}

/// A savepoint that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TakenSavepoint {
    /// The checkpoint that it is.
    pub id: CheckpointId,
    /// Its name, for [`CheckpointedJob::restore_from_savepoint`](super::CheckpointedJob::restore_from_savepoint).
    pub name: String,
    /// Where it is: the store's place and the folder in it.
    pub location: String,
}

impl TakenSavepoint {
    pub(super) fn new(store: &Store, id: CheckpointId, name: String) -> Self {
        Self { id, location: store.savepoint_location(&name), name }
    }
}

/// What becomes of event time when a job is stopped with a savepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Drain {
    /// It goes on from the savepoint.
    #[default]
    No,
    /// It comes to its end first: the maximum watermark and the end of the stream go before the savepoint. For jobs that
    /// will not go on.
    Yes,
}

/// A running job with checkpoints. Dropping the handle cancels the job.
#[derive(Debug)]
pub struct CheckpointedHandle {
    pub(super) store: Store,
    pub(super) requests: mpsc::UnboundedSender<Request>,
    pub(super) cancel: CancellationToken,
    pub(super) state: watch::Receiver<JobState>,
    pub(super) time: TimeStatus,
    pub(super) calls: CallStatus,
    pub(super) outcome: JoinHandle<Result<CheckpointedReport, JobError>>,
}

impl CheckpointedHandle {
    /// Returns what the job is doing. The receiver sees the newest state, not each; it outlives the job.
    pub fn state(&self) -> watch::Receiver<JobState> {
        self.state.clone()
    }

    /// Shows how time stands: of sources that keep it, of every sink, and of late side outputs.
    pub fn time(&self) -> TimeStatus {
        self.time.clone()
    }

    /// Shows how the calls of async steps stand.
    pub fn calls(&self) -> CallStatus {
        self.calls.clone()
    }

    /// Takes a checkpoint as soon as one may begin, and returns its id when it is complete.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn trigger_checkpoint(&self) -> Result<CheckpointId, AbortReason> {
        self.ask(Command::Checkpoint).await
    }

    /// Takes a savepoint at once, and returns when it is complete. The job goes on; nothing is committed on account of the
    /// savepoint.
    ///
    /// # Errors
    /// Why there is none. The job goes on.
    pub async fn savepoint(&self) -> Result<TakenSavepoint, AbortReason> {
        self.ask(Command::Savepoint).await.map(|id| self.taken(id))
    }

    /// Stops reading, takes a last checkpoint, and ends the job when its side effects are committed: that
    /// [`CheckpointedHandle::wait`] tells.
    ///
    /// # Errors
    /// Why there is no last checkpoint; the job fails then, and is not restarted.
    pub async fn stop(&self) -> Result<CheckpointId, AbortReason> {
        self.ask(Command::Stop).await
    }

    /// Stops reading, takes a savepoint, and ends the job when its side effects are committed: that
    /// [`CheckpointedHandle::wait`] tells. Returns when the savepoint is complete.
    ///
    /// # Errors
    /// Why there is no savepoint; the job fails then, and its restart strategy says whether it goes on.
    pub async fn stop_with_savepoint(&self, drain: Drain) -> Result<TakenSavepoint, AbortReason> {
        let command = Command::StopWithSavepoint { drain: drain == Drain::Yes };
        self.ask(command).await.map(|id| self.taken(id))
    }

    /// Ends the job at once: what no checkpoint covers is read again by the next start.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the job's end. Cancel safe: waiting can be taken up again.
    ///
    /// # Errors
    /// Why the job gave up.
    ///
    /// # Panics
    /// Panics when called again after it has returned.
    pub async fn wait(&mut self) -> Result<CheckpointedReport, JobError> {
        match (&mut self.outcome).await {
            Ok(outcome) => outcome,
            Err(_) => Err(JobError::Panicked { subtask: 0 }),
        }
    }

    fn taken(&self, id: CheckpointId) -> TakenSavepoint {
        TakenSavepoint::new(&self.store, id, savepoint_name(id))
    }

    async fn ask(&self, command: Command) -> Result<CheckpointId, AbortReason> {
        self.ask_unanswered(command).await.unwrap_or(Err(AbortReason::JobEnded))
    }

    /// Asks, and leaves it open whether anybody waits for the answer. A job that has ended answers nothing.
    pub(super) fn ask_unanswered(
        &self,
        command: Command,
    ) -> oneshot::Receiver<Result<CheckpointId, AbortReason>> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request { command, answer }).ok();
        answered
    }
}

impl Drop for CheckpointedHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
