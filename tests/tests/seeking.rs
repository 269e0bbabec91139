//! A seek from beside a job: the engine takes it, and stores it.

use std::sync::{Arc, Mutex};

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::time::{Blocked, Pause, SplitStatus, WatermarkStrategy};
use levada_core::{
    Assignment, AtomicSink, Batch, Committed, Pending, Position, Positions, Sink, SinkContext, SinkError,
    SplitId,
};
use levada_engine::store::Store;
use levada_engine::{Job, TimeSnapshot};
use levada_kafka::{KafkaSource, KafkaSourceConfig, SeekTo};
use levada_testcontainers::{Kafka, wait_until};
use levada_tests::process::PATIENCE;
use levada_tests::topic::Topic;
use tokio::runtime::Runtime;

/// What was written, in order, and where the splits stood at the last commit.
#[derive(Debug, Default, Clone)]
struct Table(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    open: Vec<u64>,
    written: Vec<u64>,
    positions: Positions,
}

impl Table {
    fn written(&self) -> Vec<u64> {
        self.0.lock().expect("a table").written.clone()
    }
}

impl Sink<u64> for Table {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn write(&mut self, batch: Batch<u64>) -> Result<(), SinkError> {
        self.0.lock().expect("a table").open.extend(batch.records().iter().map(|record| record.item));
        Ok(())
    }

    async fn close(&mut self) {}
}

impl AtomicSink<u64> for Table {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let kept = self.0.lock().expect("a table");
        let at = |split: &SplitId| kept.positions.get(split).cloned().unwrap_or(Position::at(0));
        Ok(assignment.splits.iter().map(|split| (split.clone(), at(split))).collect())
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        let mut kept = self.0.lock().expect("a table");
        let open = std::mem::take(&mut kept.open);
        let written = open.len() as u64;
        kept.written.extend(open);
        for (split, position) in positions.iter() {
            kept.positions.set(split.clone(), position.clone());
        }
        Ok(Committed { written, ..Committed::default() })
    }

    fn discard(&mut self) {
        self.0.lock().expect("a table").open.clear();
    }

    fn release(&mut self, _: &[SplitId]) {}

    fn pending(&self) -> Pending {
        Pending { rows: self.0.lock().expect("a table").open.len() as u64, bytes: 0 }
    }
}

#[derive(Debug, Clone)]
struct Rows(Table);

impl IdempotentSink<u64> for Rows {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        self.0.0.lock().expect("a table").written.extend(batch.records().iter().map(|record| record.item));
        Ok(())
    }
}

/// A topic of one partition with ten records, and a source of it.
struct Scene {
    topic: Topic,
    split: SplitId,
    bootstrap: String,
}

impl Scene {
    fn new() -> Self {
        let bootstrap = Kafka::shared().expect("a broker").bootstrap().to_owned();
        let topic = Topic::create(&bootstrap, 1);
        (0..10).for_each(|_| topic.send(Some(0), None, Some("v")));
        topic.flush();
        Self { split: SplitId::new(topic.name.as_str(), 0), topic, bootstrap }
    }

    fn source(&self) -> KafkaSource {
        let config = KafkaSourceConfig::new(&self.bootstrap, [&self.topic.name]);
        KafkaSource::new(config).expect("a source")
    }
}

fn rests(time: &TimeSnapshot) -> bool {
    let is_paused = |status: SplitStatus| matches!(status, SplitStatus::Blocked(Blocked::Paused(by)) if by.contains(Pause::User));
    time.sources.iter().flat_map(|source| &source.splits).any(|split| is_paused(split.status))
}

/// Hands a source to a job that asks for one a subtask.
fn once(source: KafkaSource) -> impl Fn(u32) -> KafkaSource + Send + 'static {
    let source = Mutex::new(Some(source));
    move |_| source.lock().expect("a source").take().expect("one subtask")
}

fn offsets(ranges: &[std::ops::Range<u64>]) -> Vec<u64> {
    ranges.iter().cloned().flatten().collect()
}

/// [SRC-18] [SRC-30] in an atomic job: reading goes back, the position that has moved back is committed, a split that the user
/// lets rest is told to, and a seek that is followed by a stop is where the next run begins.
#[test]
fn atomic_job_goes_on_where_it_was_sought_and_commits_that() {
    let scene = Scene::new();
    let runtime = Runtime::new().expect("a runtime");
    let table = Table::default();
    let run = || {
        let (source, to) = (scene.source(), table.clone());
        let control = source.control();
        let job =
            Job::new("seek").source("topic", once(source)).map("offset", |input| Ok(input.origin().offset));
        let job =
            job.watermarks("time", WatermarkStrategy::monotonic()).atomic_sink("table", move |_| to.clone());
        (runtime.block_on(async { job.start().expect("a job") }), control)
    };
    let (mut job, control) = run();
    wait_until(PATIENCE, "ten", || table.written().len() == 10).expect("in time");
    runtime.block_on(control.seek(scene.split.clone(), SeekTo::Offset(4))).expect("sought");
    wait_until(PATIENCE, "six more", || table.written().len() == 16).expect("in time");
    control.pause(std::slice::from_ref(&scene.split));
    let time = job.time();
    wait_until(PATIENCE, "a rest", || rests(&time.snapshot())).expect("in time");
    runtime.block_on(control.seek(scene.split.clone(), SeekTo::Offset(2))).expect("sought");
    job.stop();
    runtime.block_on(job.wait()).expect("a good end");
    assert_eq!(table.written(), offsets(&[0..10, 4..10]));
    assert_eq!(table.0.lock().expect("a table").positions.get(&scene.split), Some(&Position::at(2)));

    let (mut job, _control) = run();
    wait_until(PATIENCE, "eight more", || table.written().len() == 24).expect("in time");
    job.stop();
    runtime.block_on(job.wait()).expect("a good end");
    assert_eq!(table.written(), offsets(&[0..10, 4..10, 2..10]));
}

/// [SRC-18] [SRC-30] in a job with checkpoints: the same, with the position in its last checkpoint.
#[test]
fn checkpointed_job_goes_on_where_it_was_sought_and_stores_that() {
    let scene = Scene::new();
    let runtime = Runtime::new().expect("a runtime");
    let store = runtime.block_on(Store::open("memory:")).expect("a store");
    let table = Table::default();
    let run = || {
        let (source, to) = (scene.source(), Rows(table.clone()));
        let control = source.control();
        let job =
            Job::new("seek").source("topic", once(source)).map("offset", |input| Ok(input.origin().offset));
        let job = job.watermarks("time", WatermarkStrategy::monotonic()).checkpointed();
        let job = job.idempotent_sink("table", move |_| to.clone());
        let store = store.clone();
        (runtime.block_on(async { job.start(store).expect("a job") }), control)
    };
    let (mut job, control) = run();
    wait_until(PATIENCE, "ten", || table.written().len() == 10).expect("in time");
    runtime.block_on(control.seek(scene.split.clone(), SeekTo::Offset(4))).expect("sought");
    wait_until(PATIENCE, "six more", || table.written().len() == 16).expect("in time");
    control.pause(std::slice::from_ref(&scene.split));
    let time = job.time();
    wait_until(PATIENCE, "a rest", || rests(&time.snapshot())).expect("in time");
    runtime.block_on(control.seek(scene.split.clone(), SeekTo::Offset(2))).expect("sought");
    runtime.block_on(job.stop()).expect("a last checkpoint");
    runtime.block_on(job.wait()).expect("a good end");
    assert_eq!(table.written(), offsets(&[0..10, 4..10]));

    let (mut job, _control) = run();
    wait_until(PATIENCE, "eight more", || table.written().len() == 24).expect("in time");
    runtime.block_on(job.stop()).expect("a last checkpoint");
    runtime.block_on(job.wait()).expect("a good end");
    assert_eq!(table.written(), offsets(&[0..10, 4..10, 2..10]));
}
