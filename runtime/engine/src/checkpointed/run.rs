//! A job with checkpoints, and what it is started with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Clock, SystemClock, WriteOrder};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::handle::{CheckpointedHandle, CheckpointedReport};
use super::job_state::JobState;
use super::launch::Launch;
use super::pieces::PIECE_BYTES;
use super::shell::Shell;
use super::sink_part::{SinkPart, Writes};
use crate::async_io::CallStatus;
use crate::checkpoint::{CheckpointSettings, RestartStrategy};
use crate::error::JobError;
use crate::job::Job;
use crate::plan::{Orders, ShapeError, Stage, check_shape, orders};
use crate::store::{RestoreFrom, RestorePolicy, Store, TakeOver};
use crate::time::TimeStatus;

/// Spawns the tasks of an attempt.
pub(crate) type SpawnTasks = Box<dyn Fn(&mut Launch<'_>) + Send>;

/// What a job is to go on from.
#[derive(Debug, Clone)]
pub(crate) enum StartFrom {
    /// An entry of the log.
    Entry(RestoreFrom),
    /// A savepoint, by its name.
    Savepoint(String),
}

/// A whole job with checkpoints, ready to start.
pub struct CheckpointedJob {
    pub(crate) job: Job,
    pub(crate) stages: Vec<Stage>,
    pub(crate) spawn: SpawnTasks,
    /// What sinks have to do once a start.
    pub(crate) sinks: Vec<Box<dyn SinkPart>>,
    /// What order means to them.
    pub(super) writes: Writes,
    /// In which order async steps let results leave; known from the start on.
    pub(crate) orders: Orders,
    pub(crate) settings: CheckpointSettings,
    pub(crate) restarts: RestartStrategy,
    pub(crate) from: StartFrom,
    pub(crate) policy: RestorePolicy,
    pub(crate) allow_unknown_state: bool,
    pub(crate) piece_bytes: usize,
    pub(crate) downtime: Duration,
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
            sinks: Vec::new(),
            writes: Vec::new(),
            orders: Orders::new(),
            settings: CheckpointSettings::default(),
            restarts: RestartStrategy::default(),
            from: StartFrom::Entry(RestoreFrom::Latest),
            policy: RestorePolicy::default(),
            allow_unknown_state: false,
            piece_bytes: PIECE_BYTES,
            downtime: Duration::ZERO,
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

    /// Sets what to go on from. Default: the newest checkpoint. Once this start has completed a checkpoint of its own, a
    /// restart goes on from that.
    #[must_use]
    pub fn restore_from(self, from: RestoreFrom) -> Self {
        Self { from: StartFrom::Entry(from), ..self }
    }

    /// Goes on from a savepoint of the store, by its name ([`TakenSavepoint::name`](super::TakenSavepoint::name)), however many subtasks it had. One that
    /// was gone on from before, or that newer checkpoints follow, needs [`CheckpointedJob::allow_replay`].
    #[must_use]
    pub fn restore_from_savepoint(self, name: impl Into<String>) -> Self {
        Self { from: StartFrom::Savepoint(name.into()), ..self }
    }

    /// Allows sinks to publish again what they have published, when an older checkpoint must be used.
    #[must_use]
    pub fn allow_replay(mut self) -> Self {
        self.policy.allow_replay = true;
        self
    }

    /// Allows a start from nothing when there were checkpoints and none can be used, or when the first one must be rolled
    /// back: sources read from where they begin, and sinks publish that again.
    #[must_use]
    pub fn allow_fresh_start(mut self) -> Self {
        self.policy.allow_fresh_start = true;
        self
    }

    /// Allows state in the checkpoint of operators that the job does not have: it is dropped.
    #[must_use]
    pub fn allow_unknown_state(self) -> Self {
        Self { allow_unknown_state: true, ..self }
    }

    /// Sets the size in bytes at which records that a write-ahead sink holds back are written to the store, while their
    /// interval goes on. Default 4 MiB; a subtask holds about this and one batch in memory.
    #[must_use]
    pub fn piece_bytes(self, piece_bytes: usize) -> Self {
        Self { piece_bytes, ..self }
    }

    /// States how long the job may be down before targets drop its pending transactions. A start is refused when those of a
    /// two-phase sink time out sooner than after the checkpoint interval, the checkpoint timeout and this together. Default
    /// zero.
    #[must_use]
    pub fn downtime(self, downtime: Duration) -> Self {
        Self { downtime, ..self }
    }

    /// Takes the store from a process that still holds it: whatever that one tries to append fails from then on.
    #[must_use]
    pub fn take_over(self) -> Self {
        Self { take_over: TakeOver::Always, ..self }
    }

    /// Sets the clock that stamps checkpoints, by which splits become idle, and watermarks lag. Default: the machine's.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Starts the job on the current tokio runtime.
    ///
    /// # Errors
    /// A [`ShapeError`] names the stage that cannot keep the promise; nothing was started then. What the store says comes
    /// from [`CheckpointedHandle::wait`].
    pub fn start(mut self, store: Store) -> Result<CheckpointedHandle, ShapeError> {
        check_shape(&self.stages, self.job.parallelism)?;
        self.orders = orders(&self.stages, |uid| self.order_of(uid))?;
        self.policy.every_sink_idempotent = self.every_sink_idempotent;
        for sink in &self.sinks {
            sink.bind(&store, self.piece_bytes);
        }
        let cancel = CancellationToken::new();
        let (requests, received) = mpsc::unbounded_channel();
        let (state, watched) = watch::channel(JobState::Starting);
        let time = TimeStatus::new(Arc::clone(&self.clock));
        let calls = CallStatus::default();
        let status = (time.clone(), calls.clone());
        let shell = Shell::new(self, store.clone(), received, cancel.clone(), state, status);
        let outcome = tokio::spawn(shell.run());
        Ok(CheckpointedHandle { store, requests, cancel, state: watched, time, calls, outcome })
    }
}

impl CheckpointedJob {
    /// Asks what order means to a sink.
    fn order_of(&self, uid: &str) -> WriteOrder {
        let writes = self.writes.iter().find(|(name, _)| name == uid);
        writes.map_or_else(WriteOrder::default, |(_, ask)| ask())
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
