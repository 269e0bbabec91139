//! A job with checkpoints: what it is started with, and the handle of the running one.

use std::fmt;
use std::sync::Arc;

use levada_core::{CheckpointId, Clock, SystemClock};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::launch::Launch;
use super::shell::{Request, Shell};
use crate::checkpoint::{AbortReason, CheckpointSettings, Command, RestartStrategy};
use crate::error::JobError;
use crate::job::Job;
use crate::plan::{ShapeError, Stage, check_shape};
use crate::store::{RestorePolicy, Store, TakeOver};

/// Spawns the tasks of an attempt.
pub(crate) type SpawnTasks = Box<dyn Fn(&mut Launch<'_>) + Send>;

/// A whole job with checkpoints, ready to start.
pub struct CheckpointedJob {
    pub(crate) job: Job,
    pub(crate) stages: Vec<Stage>,
    pub(crate) spawn: SpawnTasks,
    pub(crate) settings: CheckpointSettings,
    pub(crate) restarts: RestartStrategy,
    pub(crate) policy: RestorePolicy,
    pub(crate) take_over: TakeOver,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether going back further than needed does no harm.
    pub(crate) every_sink_idempotent: bool,
}

impl fmt::Debug for CheckpointedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointedJob")
            .field("job", &self.job)
            .field("stages", &self.stages)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl CheckpointedJob {
    pub(crate) fn new(job: Job, stages: Vec<Stage>, spawn: SpawnTasks) -> Self {
        Self {
            job,
            stages,
            spawn,
            settings: CheckpointSettings::default(),
            restarts: RestartStrategy::default(),
            policy: RestorePolicy::default(),
            take_over: TakeOver::default(),
            clock: Arc::new(SystemClock),
            every_sink_idempotent: false,
        }
    }

    /// Sets when checkpoints are taken. Default: on request, and at the end.
    #[must_use]
    pub fn checkpoints(self, settings: CheckpointSettings) -> Self {
        Self { settings, ..self }
    }

    /// Sets what follows a failure. Default: the job ends.
    #[must_use]
    pub fn restarts(self, restarts: RestartStrategy) -> Self {
        Self { restarts, ..self }
    }

    /// Allows sinks to publish again what they have published, when an older checkpoint must be used.
    #[must_use]
    pub fn allow_replay(mut self) -> Self {
        self.policy.allow_replay = true;
        self
    }

    /// Takes the store from a process that still holds it: whatever that one tries to append fails from then on.
    #[must_use]
    pub fn take_over(self) -> Self {
        Self { take_over: TakeOver::Always, ..self }
    }

    /// Sets the clock that stamps checkpoints. Default: the machine's.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Starts the job on the current tokio runtime, from the newest checkpoint of the store.
    ///
    /// # Errors
    /// A [`ShapeError`] names the stage that cannot keep the promise; nothing was started then. What the store says comes
    /// from [`CheckpointedHandle::wait`].
    pub fn start(mut self, store: Store) -> Result<CheckpointedHandle, ShapeError> {
        check_shape(&self.stages, self.job.parallelism)?;
        self.policy.every_sink_idempotent = self.every_sink_idempotent;
        let cancel = CancellationToken::new();
        let (requests, received) = mpsc::unbounded_channel();
        let shell = Shell::new(self, store, received, cancel.clone());
        Ok(CheckpointedHandle { requests, cancel, outcome: tokio::spawn(shell.run()) })
    }
}

/// For jobs that end by themselves.
impl CheckpointedJob {
    /// Starts the job and waits for its end. Dropping the future cancels the job.
    ///
    /// # Errors
    /// Those of [`CheckpointedJob::start`] and [`CheckpointedHandle::wait`].
    pub async fn run(self, store: Store) -> Result<CheckpointedReport, JobError> {
        self.start(store)?.wait().await
    }
}

/// What a job with checkpoints came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointedReport {
    /// The number of the lease under which it ran.
    pub attempt: u64,
    /// The last checkpoint whose side effects are committed.
    pub last: Option<CheckpointId>,
    /// How often it was restarted.
    pub restarts: u32,
}

/// A running job with checkpoints. Dropping the handle cancels the job.
#[derive(Debug)]
pub struct CheckpointedHandle {
    requests: mpsc::UnboundedSender<Request>,
    cancel: CancellationToken,
    outcome: JoinHandle<Result<CheckpointedReport, JobError>>,
}

impl CheckpointedHandle {
    /// Takes a checkpoint as soon as one may begin, and returns its id when it is complete.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn trigger_checkpoint(&self) -> Result<CheckpointId, AbortReason> {
        self.ask(Command::Checkpoint).await
    }

    /// Stops reading, takes a last checkpoint, and ends the job when its side effects are committed.
    ///
    /// # Errors
    /// Why there is no last checkpoint; the job fails then.
    pub async fn stop(&self) -> Result<CheckpointId, AbortReason> {
        self.ask(Command::Stop).await
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

    async fn ask(&self, command: Command) -> Result<CheckpointId, AbortReason> {
        let (answer, answered) = oneshot::channel();
        // A job that has ended answers nothing.
        if self.requests.send(Request { command, answer }).is_err() {
            return Err(AbortReason::JobEnded);
        }
        answered.await.unwrap_or(Err(AbortReason::JobEnded))
    }
}

impl Drop for CheckpointedHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
