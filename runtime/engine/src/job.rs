//! The job builder, and the handle of a running job.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use levada_core::async_io::Order;
use levada_core::time::WatermarkStrategy;
use levada_core::{
    AtomicSink, BoxError, Budget, Clock, Positions, SinkContext, Source, SourceContext, SystemClock,
};
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::async_io::CallStatus;
use crate::atomic::{AtomicDriver, Interval};
use crate::balance::Balance;
use crate::error::JobError;
use crate::map::{Chain, FlatMap, Identity, Input, Then, keeping, one_to_one};
use crate::message::{Generation, Message, Stopped};
use crate::plan::{Orders, ShapeError, Stage, StageKind, check_shape, orders};
use crate::policy::CommitPolicy;
use crate::progress::Progress;
use crate::reader::{Owned, Reader};
use crate::time::{DriftGroups, Ticks, TimeContext, TimeStatus, Timed};

/// Messages that stand between the two tasks of a subtask: two batches, each with the offer behind it. They keep the sink
/// fed while the next one is decoded; more would only add latency, since the byte budget allows for bursts in the source.
pub(crate) const CHANNEL_CAPACITY: usize = 4;

/// What a job is called and how it runs.
///
/// ```no_run
/// # use levada_core::{BoxAtomicSink, BoxSource};
/// # fn source() -> BoxSource { unimplemented!() }
/// # fn sink() -> BoxAtomicSink<usize> { unimplemented!() }
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use levada_engine::Job;
///
/// let job = Job::new("sizes")
///     .parallelism(2)
///     .source("topic", |_subtask| source())
///     .map("size", |input| Ok(input.value().map_or(0, <[u8]>::len)))
///     .atomic_sink("table", |_subtask| sink());
/// let report = job.start()?.wait().await?;
/// println!("{}", report.balance);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    pub(crate) name: String,
    pub(crate) parallelism: u32,
    pub(crate) budget: Budget,
    policy: CommitPolicy,
    stop_deadline: Duration,
    pub(crate) drift_groups: DriftGroups,
}

impl Job {
    /// Names a job. Positions are stored under this name; changing it starts anew.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parallelism: 1,
            budget: Budget::new(256 << 20),
            policy: CommitPolicy::default(),
            stop_deadline: Duration::from_secs(25),
            drift_groups: DriftGroups::new(),
        }
    }

    /// Sets how many subtasks read and write side by side. Default 1.
    #[must_use]
    pub fn parallelism(self, parallelism: u32) -> Self {
        Self { parallelism, ..self }
    }

    /// Sets the payload bytes that may be in flight in the job. Default 256 MiB: a half for batches, a half for what the
    /// source's client fetches ahead.
    #[must_use]
    pub fn budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Sets when intervals are committed.
    #[must_use]
    pub fn commit_policy(self, policy: CommitPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Sets how long the last commit may take after [`JobHandle::stop`]. Default 25 s.
    #[must_use]
    pub fn stop_deadline(self, stop_deadline: Duration) -> Self {
        Self { stop_deadline, ..self }
    }

    /// Shares groups of sources that wait for each other with other jobs of the process. Default: groups of its own.
    #[must_use]
    pub fn drift_groups(self, drift_groups: DriftGroups) -> Self {
        Self { drift_groups, ..self }
    }

    /// Adds the source; `make` is called once a subtask.
    pub fn source<S, F>(self, uid: impl Into<String>, make: F) -> Pipeline<S, ()>
    where
        S: Source + 'static,
        F: Fn(u32) -> S + Send + 'static,
    {
        let stages = vec![Stage::new(uid, StageKind::Source)];
        Pipeline {
            job: self,
            stages,
            make_source: Box::new(make),
            make_chain: Box::new(|_| Box::new(Identity)),
        }
    }
}

pub(crate) type Make<V> = Box<dyn Fn(u32) -> V + Send>;

/// A source with the steps behind it.
///
/// `S` is the source, `I` what it reads, `T` what the steps have made of it.
pub struct Pipeline<S, T, I = ()> {
    pub(crate) job: Job,
    pub(crate) stages: Vec<Stage>,
    pub(crate) make_source: Make<S>,
    pub(crate) make_chain: Make<Box<dyn Chain<I, T>>>,
}

impl<S, T, I> fmt::Debug for Pipeline<S, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("job", &self.job)
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}

impl<S: 'static, T: Send + 'static, I: Send + 'static> Pipeline<S, T, I> {
    /// Adds a step that makes 0..n records of one, or refuses it. `make` is called once a subtask, so a step may keep
    /// state of its own.
    pub fn flat_map<O, M, F>(mut self, uid: impl Into<String>, make: F) -> Pipeline<S, O, I>
    where
        O: Send + 'static,
        M: FlatMap<T, O> + 'static,
        F: Fn(u32) -> M + Send + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::Map));
        let make_before = self.make_chain;
        Pipeline {
            job: self.job,
            stages: self.stages,
            make_source: self.make_source,
            make_chain: Box::new(move |subtask| Box::new(Then::new(make_before(subtask), make(subtask)))),
        }
    }

    /// Adds a step that makes one record of one, or refuses it.
    pub fn map<O, F>(self, uid: impl Into<String>, step: F) -> Pipeline<S, O, I>
    where
        O: Send + 'static,
        F: Fn(Input<'_, T>) -> Result<O, BoxError> + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| one_to_one(step.clone()))
    }

    /// Adds a step that keeps the records for which `keep` says so; the others are counted as filtered.
    pub fn filter<F>(self, uid: impl Into<String>, keep: F) -> Pipeline<S, T, I>
    where
        T: Clone,
        F: Fn(&Input<'_, T>) -> bool + Clone + Send + 'static,
    {
        self.flat_map(uid, move |_| keeping(keep.clone()))
    }
}

impl<S: 'static, T: Send + 'static, I: Send + 'static> Pipeline<S, T, I> {
    /// Gives records their time by what the steps so far have made of them, and says when no more of a time will come, for
    /// each split by itself. What a strategy is, [`WatermarkStrategy`] tells.
    ///
    /// In front of an atomic sink it shows how time stands ([`JobHandle::time`]), lets splits wait for each other, and ends
    /// the job, or refuses, where a record has no timestamp.
    pub fn watermarks(mut self, uid: impl Into<String>, strategy: WatermarkStrategy<T>) -> Self {
        self.stages.push(Stage::new(uid, StageKind::Watermarks));
        let make_before = self.make_chain;
        let make_chain = move |subtask| -> Box<dyn Chain<I, T>> {
            Box::new(Timed::by(strategy.clone(), make_before(subtask)))
        };
        Pipeline { make_chain: Box::new(make_chain), ..self }
    }
}

impl<S: Source + 'static, T: Send + 'static> Pipeline<S, T> {
    /// Ends the chain with an atomic sink; `make` is called once a subtask.
    pub fn atomic_sink<K, F>(mut self, uid: impl Into<String>, make: F) -> RunnableJob<S, K, T>
    where
        K: AtomicSink<T> + 'static,
        F: Fn(u32) -> K + Send + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::AtomicSink));
        let (job, stages) = (self.job.clone(), self.stages.clone());
        RunnableJob::new(job, stages, Box::new(self), Box::new(make))
    }
}

/// What stands in front of an atomic sink, or of an async step.
pub(crate) trait Front<T>: Send {
    /// Spawns its tasks for one subtask.
    fn spawn(&self, launch: &mut SubtaskLaunch<'_>, to: mpsc::Sender<Message<T>>);
}

/// The tasks of one subtask, while they are spawned.
pub(crate) struct SubtaskLaunch<'a> {
    pub(crate) subtask: u32,
    job: &'a Job,
    pub(crate) clock: &'a Arc<dyn Clock>,
    time: &'a TimeStatus,
    pub(crate) calls: &'a CallStatus,
    orders: &'a Orders,
    pub(crate) generation: Generation,
    pub(crate) stop: &'a CancellationToken,
    pub(crate) cancel: &'a CancellationToken,
    tasks: &'a mut JoinSet<Result<(), Stopped>>,
    subtask_of: &'a mut HashMap<task::Id, u32>,
}

impl SubtaskLaunch<'_> {
    pub(crate) fn spawn(&mut self, task: impl Future<Output = Result<(), Stopped>> + Send + 'static) {
        let task = self.tasks.spawn(task);
        self.subtask_of.insert(task.id(), self.subtask);
    }

    /// Returns the order in which an async step lets results leave.
    pub(crate) fn order_of(&self, uid: &str) -> Order {
        self.orders.get(uid).copied().unwrap_or(Order::Ordered)
    }
}

impl<S: Source + 'static, T: Send + 'static> Front<T> for Pipeline<S, T> {
    fn spawn(&self, launch: &mut SubtaskLaunch<'_>, to_sink: mpsc::Sender<Message<T>>) {
        let subtask = launch.subtask;
        let uid = self.stages.first().map(|stage| stage.uid.clone()).unwrap_or_default();
        let reader = Reader {
            uid: uid.clone(),
            subtask,
            source: (self.make_source)(subtask),
            chain: (self.make_chain)(subtask),
            to_sink,
            generation: launch.generation.clone(),
            owned: Owned::default(),
            offers: 0,
            time: TimeContext {
                uid,
                subtask,
                clock: Arc::clone(launch.clock),
                groups: launch.job.drift_groups.clone(),
                status: launch.time.clone(),
            },
            ticks: Ticks::Never,
            held_up: Duration::ZERO,
            stop: launch.stop.clone(),
            cancel: launch.cancel.clone(),
        };
        let (parallelism, budget) = (launch.job.parallelism, launch.job.budget.clone());
        launch.spawn(reader.run(SourceContext { subtask, parallelism, budget }));
    }
}

/// A whole job, ready to start.
pub struct RunnableJob<S, K, T> {
    job: Job,
    stages: Vec<Stage>,
    front: Box<dyn Front<T>>,
    make_sink: Make<K>,
    clock: Arc<dyn Clock>,
    source: PhantomData<fn() -> S>,
}

impl<S, K, T> fmt::Debug for RunnableJob<S, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableJob")
            .field("job", &self.job)
            .field("stages", &self.stages)
            .finish_non_exhaustive()
    }
}

impl<S, K, T> RunnableJob<S, K, T>
where
    S: Source + 'static,
    K: AtomicSink<T> + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(job: Job, stages: Vec<Stage>, front: Box<dyn Front<T>>, make_sink: Make<K>) -> Self {
        Self { job, stages, front, make_sink, clock: Arc::new(SystemClock), source: PhantomData }
    }

    /// Sets the clock by which splits become idle and watermarks lag. Default: the machine's.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Starts the job on the current tokio runtime.
    ///
    /// # Errors
    /// A [`ShapeError`] names the stage that cannot keep the promise; nothing was started then.
    pub fn start(self) -> Result<JobHandle, ShapeError> {
        let RunnableJob { job, stages, front, make_sink, clock, .. } = self;
        check_shape(&stages, job.parallelism)?;
        let sink_uid = stages.last().map(|stage| stage.uid.clone()).unwrap_or_default();
        let orders = orders(&stages, |_| make_sink(0).write_order())?;

        let (progress, watching) = watch::channel(Progress::default());
        let progress = Arc::new(progress);
        let (stop, cancel) = (CancellationToken::new(), CancellationToken::new());
        let (time, calls) = (TimeStatus::new(Arc::clone(&clock)), CallStatus::default());
        let mut tasks = JoinSet::new();
        let mut subtask_of = HashMap::new();
        for subtask in 0..job.parallelism {
            let (to_sink, from_reader) = mpsc::channel(CHANNEL_CAPACITY);
            let mut launch = SubtaskLaunch {
                subtask,
                job: &job,
                clock: &clock,
                time: &time,
                calls: &calls,
                orders: &orders,
                generation: Generation::default(),
                stop: &stop,
                cancel: &cancel,
                tasks: &mut tasks,
                subtask_of: &mut subtask_of,
            };
            front.spawn(&mut launch, to_sink);
            let driver = AtomicDriver {
                uid: sink_uid.clone(),
                sink: make_sink(subtask),
                policy: job.policy,
                from_reader,
                generation: launch.generation.clone(),
                progress: Arc::clone(&progress),
                stop: stop.clone(),
                cancel: cancel.clone(),
                interval: Interval::default(),
                fence: None,
                report: time.stage(&sink_uid, subtask),
            };
            let (name, parallelism) = (job.name.clone(), job.parallelism);
            launch.spawn(driver.run(SinkContext { job: name, subtask, parallelism }));
        }
        let supervisor = Supervisor {
            tasks,
            subtask_of,
            stop: stop.clone(),
            cancel: cancel.clone(),
            stop_deadline: job.stop_deadline,
            progress: watching.clone(),
        };
        let outcome = tokio::spawn(supervisor.run());
        Ok(JobHandle { stop, cancel, progress: watching, time, calls, outcome })
    }
}

/// What a job came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What became of the records.
    pub balance: Balance,
    /// Where each split stands.
    pub positions: Positions,
}

/// A running job. Dropping the handle cancels the job.
#[derive(Debug)]
pub struct JobHandle {
    stop: CancellationToken,
    cancel: CancellationToken,
    progress: watch::Receiver<Progress>,
    time: TimeStatus,
    calls: CallStatus,
    outcome: JoinHandle<Result<Report, JobError>>,
}

impl JobHandle {
    /// Asks the job to stop: reading ends, what was read is committed. Bounded by [`Job::stop_deadline`].
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the job at once: what is not committed is dropped.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns tokens for both, to be used from signal handlers.
    pub fn tokens(&self) -> (CancellationToken, CancellationToken) {
        (self.stop.clone(), self.cancel.clone())
    }

    /// Watches what is committed.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Shows how time stands, if the source keeps it ([`Pipeline::watermarks`]).
    pub fn time(&self) -> TimeStatus {
        self.time.clone()
    }

    /// Shows how the calls of async steps stand.
    pub fn calls(&self) -> CallStatus {
        self.calls.clone()
    }

    /// Waits for the job's end. Cancel safe: waiting can be taken up again.
    ///
    /// # Errors
    /// Why the job gave up; the first error of any subtask.
    ///
    /// # Panics
    /// Panics when called again after it has returned.
    pub async fn wait(&mut self) -> Result<Report, JobError> {
        match (&mut self.outcome).await {
            Ok(outcome) => outcome,
            Err(_) => Err(JobError::Panicked { subtask: 0 }),
        }
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

struct Supervisor {
    tasks: JoinSet<Result<(), Stopped>>,
    /// Tells whose a task is that died without a word.
    subtask_of: HashMap<task::Id, u32>,
    stop: CancellationToken,
    cancel: CancellationToken,
    stop_deadline: Duration,
    progress: watch::Receiver<Progress>,
}

impl Supervisor {
    /// Waits for all tasks. The first error ends the others; it is the one that counts.
    async fn run(mut self) -> Result<Report, JobError> {
        let mut first_error = None;
        let stop = self.stop.clone();
        let stop_deadline = self.stop_deadline;
        let overdue = async move {
            stop.cancelled().await;
            sleep_until(Instant::now() + stop_deadline).await;
        };
        let mut overdue = pin!(overdue);
        loop {
            let joined = tokio::select! {
                // A job that has just finished its last commit is not overdue.
                biased;
                joined = self.tasks.join_next() => joined,
                () = &mut overdue, if !self.cancel.is_cancelled() => {
                    first_error.get_or_insert(JobError::StopDeadline(stop_deadline));
                    self.cancel.cancel();
                    continue;
                }
            };
            let Some(joined) = joined else { break };
            let error = match joined {
                Ok(Ok(())) => None,
                Ok(Err(Stopped::Error(error))) => Some(error),
                // Its peer or whoever cancelled tells why.
                Ok(Err(Stopped::PeerGone | Stopped::Cancelled)) => {
                    self.cancel.cancel();
                    None
                }
                Err(panic) => Some(JobError::Panicked {
                    subtask: self.subtask_of.get(&panic.id()).copied().unwrap_or_default(),
                }),
            };
            if let Some(error) = error {
                first_error.get_or_insert(error);
                self.cancel.cancel();
            }
        }
        if let Some(error) = first_error {
            return Err(error);
        }
        if self.cancel.is_cancelled() {
            return Err(JobError::Cancelled);
        }
        let progress = self.progress.borrow();
        progress.balance.check()?;
        Ok(Report { balance: progress.balance, positions: progress.positions.clone() })
    }
}
