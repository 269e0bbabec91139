//! A source that counts, and jobs over it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{
    CheckpointId, ErrorChain, ErrorClass, ListState, SourceContext, SourceError, Spread, State, Storable,
};
use levada_engine::checkpoint::RestartStrategy;
use levada_engine::driver::{LossPolicy, Retry, TwoPhaseOptions};
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, CheckpointedJob, Job, JobError, JobState};
use tokio::sync::{Notify, watch};

use crate::target::{Phase, Target};

/// Counts up to an end; subtask `n` of `p` begins with the numbers `n`, `n + p`, … of `ways`. Its ways are list state.
#[derive(Debug)]
pub(crate) struct Count {
    ways: u64,
    end: u64,
    subtask: u32,
    /// The next number of each way.
    next: Vec<u64>,
    gate: Arc<Gate>,
}

/// Lets a test stop and fail the sources.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Sources wait at this number, until it is raised.
    up_to: Mutex<u64>,
    raised: Notify,
    /// At which number each subtask has come to wait last.
    waits_at: watch::Sender<BTreeMap<u32, u64>>,
    /// The number at which a source fails once.
    pub(crate) fail_at: Mutex<Option<u64>>,
}

impl Gate {
    pub(crate) fn raise(&self, up_to: u64) {
        *self.up_to.lock().unwrap() = up_to;
        self.raised.notify_waiters();
    }

    /// Lets sources of so many subtasks go up to a number, and waits until all have emitted everything before it.
    pub(crate) async fn reach(&self, up_to: u64, parallelism: u32) {
        self.waits_at.send_replace(BTreeMap::new());
        self.raise(up_to);
        let mut waits_at = self.waits_at.subscribe();
        let all = |at: &BTreeMap<u32, u64>| (0..parallelism).all(|subtask| at.get(&subtask) == Some(&up_to));
        waits_at.wait_for(all).await.unwrap();
    }
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        self.subtask = ctx.subtask;
        self.next = match restored.get("ways") {
            Some(list) => list.elements.iter().map(|bytes| u64::load(1, bytes).unwrap()).collect(),
            None => (0..self.ways)
                .filter(|way| way % u64::from(ctx.parallelism) == u64::from(ctx.subtask))
                .collect(),
        };
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        let Some(next) = self.next.iter_mut().filter(|next| **next < self.end).min() else {
            return Ok(Next::End);
        };
        loop {
            let raised = self.gate.raised.notified();
            let up_to = *self.gate.up_to.lock().unwrap();
            if *next < up_to {
                break;
            }
            self.gate.waits_at.send_modify(|at| {
                at.insert(self.subtask, up_to);
            });
            raised.await;
        }
        let mut fail_at = self.gate.fail_at.lock().unwrap();
        if fail_at.is_some_and(|at| *next >= at) {
            *fail_at = None;
            return Err(SourceError::new(ErrorClass::Fatal, "asked to fail"));
        }
        out.record(*next);
        *next += self.ways;
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        let elements = self.next.iter().map(|next| {
            let mut bytes = Vec::new();
            next.store(&mut bytes);
            bytes
        });
        State::new().with("ways", ListState::new(Spread::Split, 1, elements.collect()))
    }
}

/// How many numbers the jobs of these tests count.
pub(crate) const END: u64 = 1000;

/// One attempt at a commit, so that a target that is away fails the job at once.
pub(crate) fn options(on_loss: LossPolicy) -> TwoPhaseOptions {
    let retry = Retry { attempts: 1, ..Retry::default() };
    TwoPhaseOptions { retry, on_loss, ..TwoPhaseOptions::default() }
}

/// What outlives the jobs: how far the sources may count, the target, and the store.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) gate: Arc<Gate>,
    pub(crate) target: Target,
    pub(crate) store: Store,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::over(Store::open("memory:").await.unwrap())
    }

    pub(crate) fn over(store: Store) -> Self {
        Self { gate: Arc::default(), target: Target::default(), store }
    }

    pub(crate) fn source(&self) -> impl Fn(u32) -> Count + Send + 'static {
        let gate = Arc::clone(&self.gate);
        move |_| Count { ways: 12, end: END, subtask: 0, next: Vec::new(), gate: Arc::clone(&gate) }
    }

    pub(crate) fn job_with(&self, parallelism: u32, on_loss: LossPolicy) -> CheckpointedJob {
        let target = self.target.clone();
        Job::new("count")
            .parallelism(parallelism)
            .source_function("numbers", self.source())
            .key_by("by last digit", |number| number % 10)
            .filter("all", |_| true)
            .two_phase_sink("table", options(on_loss), move |_| target.sink("table"))
    }

    pub(crate) fn job(&self, parallelism: u32) -> CheckpointedJob {
        self.job_with(parallelism, LossPolicy::Fail)
    }

    pub(crate) fn start(&self, job: CheckpointedJob) -> CheckpointedHandle {
        job.start(self.store.clone()).unwrap()
    }

    /// Runs a job of two subtasks until a checkpoint of 300 numbers is resolved, one of 600 is complete, and its
    /// transactions wait for a target that is away. Returns the two checkpoints, and what waits.
    pub(crate) async fn with_pending(&self) -> (CheckpointId, CheckpointId, Vec<String>) {
        let mut job = self.start(self.job(2));
        let first = self.resolve(&job, 300, 2).await;
        self.target.set_away(true);
        self.reach(&job, 600, 2).await;
        let second = job.trigger_checkpoint().await.unwrap();
        let error = job.wait().await.unwrap_err();
        assert!(ErrorChain(&error).to_string().contains("the target is away"), "{error:?}");
        self.target.set_away(false);
        self.target.take_calls();
        (first, second, self.target.in_phase(Phase::PreCommitted))
    }

    /// Lets a job read up to a number, and waits until it has.
    pub(crate) async fn reach(&self, job: &CheckpointedHandle, up_to: u64, parallelism: u32) {
        let mut state = job.state();
        tokio::select! {
            () = self.gate.reach(up_to, parallelism) => {}
            ended = state.wait_for(|state| matches!(state, JobState::Ended { .. })) => {
                panic!("the job ended before it came to {up_to}: {:?}", *ended.unwrap());
            }
        }
    }

    /// Lets a job read up to a number, and takes a checkpoint whose side effects are there. Returns the newest.
    pub(crate) async fn resolve(
        &self,
        job: &CheckpointedHandle,
        up_to: u64,
        parallelism: u32,
    ) -> CheckpointId {
        self.reach(job, up_to, parallelism).await;
        job.trigger_checkpoint().await.unwrap();
        // Tasks hear of the first before they take part in the second.
        job.trigger_checkpoint().await.unwrap()
    }

    /// Lets a job read to its end.
    pub(crate) async fn finish(
        &self,
        job: CheckpointedJob,
    ) -> Result<levada_engine::CheckpointedReport, JobError> {
        self.gate.raise(u64::MAX);
        self.start(job).wait().await
    }
}

pub(crate) fn all() -> Vec<u64> {
    (0..END).collect()
}

pub(crate) fn up_to(end: u64) -> Vec<u64> {
    (0..end).collect()
}

pub(crate) fn restarts(attempts: u32) -> RestartStrategy {
    RestartStrategy::FixedDelay { attempts, delay: Duration::from_millis(1) }
}

/// Prints an error with what is behind it.
pub(crate) fn chain(error: &JobError) -> String {
    ErrorChain(error).to_string()
}
