//! Jobs with checkpoints, over scripted sources and a table in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::template::{Emit, Next, SourceFunction, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{
    Batch, CheckpointId, ErrorClass, ListState, SinkContext, SinkError, SourceContext, SourceError, Spread,
    State, Storable,
};
use levada_engine::checkpoint::{CheckpointSettings, RestartStrategy};
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_engine::{CheckpointedJob, Job};
use tokio::sync::Notify;

/// Counts up to an end; subtask `n` of `p` begins with the numbers `n`, `n + p`, … of `ways`. Its ways are list state.
#[derive(Debug)]
struct Count {
    ways: u64,
    end: u64,
    /// The next number of each way.
    next: Vec<u64>,
    gate: Arc<Gate>,
}

/// Lets a test stop and fail the sources.
#[derive(Debug, Default)]
struct Gate {
    /// Sources wait at this number, until it is raised.
    up_to: Mutex<u64>,
    raised: Notify,
    /// The number at which a source fails once.
    fail_at: Mutex<Option<u64>>,
}

impl Gate {
    fn raise(&self, up_to: u64) {
        *self.up_to.lock().unwrap() = up_to;
        self.raised.notify_waiters();
    }
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
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
            if *next < *self.gate.up_to.lock().unwrap() {
                break;
            }
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

/// What is visible, and what waits; as a target keeps it that survives its clients.
#[derive(Debug, Default)]
struct Table {
    pending: BTreeMap<String, Vec<u64>>,
    visible: Vec<u64>,
    /// Every name that was ever begun.
    names: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct TableSink(Arc<Mutex<Table>>);

impl TwoPhaseCommitSink<u64> for TableSink {
    type Handle = String;

    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        let mut table = self.0.lock().unwrap();
        assert!(table.names.insert(name.to_string()), "the name {name} was used before");
        table.pending.insert(name.to_string(), Vec::new());
        Ok(name.to_string())
    }

    async fn write(
        &mut self,
        handle: &mut String,
        batch: Batch<u64>,
        _: &WriteContext,
    ) -> Result<(), SinkError> {
        let items = batch.records().iter().map(|record| record.item);
        self.0.lock().unwrap().pending.get_mut(handle).unwrap().extend(items);
        Ok(())
    }

    async fn pre_commit(&mut self, _: &mut String) -> Result<(), SinkError> {
        Ok(())
    }

    async fn commit(&mut self, handle: &String) -> Result<(), SinkError> {
        let mut table = self.0.lock().unwrap();
        let committed = table.pending.remove(handle).unwrap_or_default();
        table.visible.extend(committed);
        Ok(())
    }

    async fn abort(&mut self, handle: &String) -> Result<(), SinkError> {
        self.0.lock().unwrap().pending.remove(handle);
        Ok(())
    }
}

#[derive(Default)]
struct Scene {
    gate: Arc<Gate>,
    table: Arc<Mutex<Table>>,
}

impl Scene {
    fn job(&self, parallelism: u32, end: u64) -> CheckpointedJob {
        let (gate, table) = (Arc::clone(&self.gate), Arc::clone(&self.table));
        Job::new("count")
            .parallelism(parallelism)
            .source_function("numbers", move |_| Count {
                ways: 12,
                end,
                next: Vec::new(),
                gate: Arc::clone(&gate),
            })
            .key_by("by last digit", |number| number % 10)
            .filter("all", |_| true)
            .two_phase_sink("table", TwoPhaseOptions::default(), move |_| TableSink(Arc::clone(&table)))
    }

    fn visible(&self) -> Vec<u64> {
        let mut visible = self.table.lock().unwrap().visible.clone();
        visible.sort_unstable();
        visible
    }
}

async fn memory() -> Store {
    Store::open("memory:").await.unwrap()
}

/// [CHK-11] the last records are visible before a bounded job ends.
#[tokio::test]
async fn bounded_job_commits_everything_once() {
    let scene = Scene::default();
    scene.gate.raise(u64::MAX);
    let mut job = scene.job(2, 1000).start(memory().await).unwrap();
    let report = job.wait().await.unwrap();
    assert!(report.last.is_some());
    assert_eq!(scene.visible(), (0..1000).collect::<Vec<_>>());
}

/// [CHK-02] [CHK-08] [TPL-01] what no checkpoint covers is read again after a failure, and what one covers is not.
#[tokio::test]
async fn restarted_job_goes_on_from_the_latest_checkpoint() {
    let scene = Scene::default();
    scene.gate.raise(500);
    let delay = Duration::from_millis(1);
    let job = scene.job(3, 1000).restarts(RestartStrategy::FixedDelay { attempts: 3, delay });
    let mut job = job.start(memory().await).unwrap();
    let first = job.trigger_checkpoint().await.unwrap();
    *scene.gate.fail_at.lock().unwrap() = Some(700);
    scene.gate.raise(u64::MAX);
    let report = job.wait().await.unwrap();
    assert_eq!(report.restarts, 1);
    assert!(report.last > Some(first));
    assert_eq!(scene.visible(), (0..1000).collect::<Vec<_>>());
}

/// [CHK-01] [CHK-16] the name of a transaction is never used twice, though no checkpoint came between two failures.
#[tokio::test]
async fn job_that_fails_before_its_first_checkpoint_starts_anew() {
    let scene = Scene::default();
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    scene.gate.raise(u64::MAX);
    let delay = Duration::from_millis(1);
    let job = scene.job(2, 1000).restarts(RestartStrategy::FixedDelay { attempts: 1, delay });
    let report = job.start(memory().await).unwrap().wait().await.unwrap();
    assert_eq!(report.restarts, 1);
    assert_eq!(scene.visible(), (0..1000).collect::<Vec<_>>());
    let scene = Scene::default();
    scene.gate.raise(u64::MAX);
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    let error = scene.job(2, 1000).start(memory().await).unwrap().wait().await.unwrap_err();
    assert!(levada_core::ErrorChain(&error).to_string().contains("asked to fail"), "{error}");
}

/// [CHK-10] [CHK-12] [TPL-02] stopped with a last checkpoint, and started again with other parallelisms.
#[tokio::test]
async fn stopped_job_goes_on_with_more_and_with_fewer_subtasks() {
    let scene = Scene::default();
    let store = memory().await;
    for (parallelism, up_to) in [(2, 300), (4, 650), (3, u64::MAX)] {
        scene.gate.raise(up_to);
        let mut job = scene.job(parallelism, 1000).start(store.clone()).unwrap();
        if up_to < 1000 {
            job.stop().await.unwrap();
        }
        job.wait().await.unwrap();
        scene.gate.raise(0);
    }
    assert_eq!(scene.visible(), (0..1000).collect::<Vec<_>>());
}

/// [CHK-06] checkpoints by the interval, while the records flow.
#[tokio::test(start_paused = true)]
async fn periodic_checkpoints_commit_while_the_job_runs() {
    let scene = Scene::default();
    scene.gate.raise(400);
    let settings = CheckpointSettings { interval: Some(Duration::from_secs(10)), ..Default::default() };
    let mut job = scene.job(2, 1000).checkpoints(settings).start(memory().await).unwrap();
    while scene.visible().len() < 400 {
        tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(1)).await;
    }
    assert_eq!(scene.visible(), (0..400).collect::<Vec<_>>());
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.visible(), (0..1000).collect::<Vec<_>>());
}

/// [CHK-15] a job that was taken over ends itself.
#[tokio::test]
async fn job_that_was_taken_over_ends_without_a_side_effect() {
    let scene = Scene::default();
    let store = memory().await;
    scene.gate.raise(300);
    let mut first = scene.job(2, 1000).start(store.clone()).unwrap();
    first.trigger_checkpoint().await.unwrap();
    let before = scene.visible();
    let mut second = scene.job(2, 1000).take_over().start(store).unwrap();
    second.trigger_checkpoint().await.unwrap();
    first.trigger_checkpoint().await.unwrap_err();
    let error = first.wait().await.unwrap_err();
    assert!(matches!(&error, levada_engine::JobError::Store(cause) if cause.is_taken_over()), "{error}");
    scene.gate.raise(u64::MAX);
    second.wait().await.unwrap();
    assert!(before.len() <= 300);
    assert_eq!(scene.visible(), (0..1000).collect::<Vec<_>>());
}
