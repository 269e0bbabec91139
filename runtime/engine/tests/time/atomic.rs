//! Time in front of an atomic sink: shown, and steering the source.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::time::{SplitEvent, SplitStatus, TimestampFrom, WithoutTimestamp};
use levada_core::{
    Assignment, AtomicSink, Batch, Committed, Pending, Polled, Position, Positions, Sink, SinkContext,
    SinkError, SplitId, Timestamp,
};
use levada_engine::{CommitPolicy, Job, JobError, JobHandle};

use crate::scene::{INTERVAL, Look as _, Scene, number, pass, scripts, sources, strategy, until};
use crate::scripted::{Script, split};

#[derive(Debug, Default, Clone)]
struct Table(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    open: Vec<i64>,
    committed: Vec<i64>,
    /// When each commit was made.
    at: Vec<tokio::time::Instant>,
    positions: Positions,
}

impl Sink<i64> for Table {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn write(&mut self, batch: Batch<i64>) -> Result<(), SinkError> {
        self.0.lock().unwrap().open.extend(batch.records().iter().map(|record| record.item));
        Ok(())
    }

    async fn close(&mut self) {}
}

impl AtomicSink<i64> for Table {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let kept = self.0.lock().unwrap();
        let at = |split: &SplitId| kept.positions.get(split).cloned().unwrap_or(Position::at(0));
        Ok(assignment.splits.iter().map(|split| (split.clone(), at(split))).collect())
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        let mut kept = self.0.lock().unwrap();
        let open = std::mem::take(&mut kept.open);
        let written = open.len() as u64;
        kept.committed.extend(open);
        kept.positions.merge(positions.clone());
        kept.at.push(tokio::time::Instant::now());
        Ok(Committed { written, ..Committed::default() })
    }

    fn discard(&mut self) {
        self.0.lock().unwrap().open.clear();
    }

    fn release(&mut self, _: &[SplitId]) {}

    fn pending(&self) -> Pending {
        Pending { rows: self.0.lock().unwrap().open.len() as u64, bytes: 0 }
    }
}

fn run(
    scene: &Scene,
    scripts: &[Arc<Script>],
    policy: CommitPolicy,
    strategy: levada_core::time::WatermarkStrategy<i64>,
) -> (Table, JobHandle) {
    let table = Table::default();
    let to = table.clone();
    let job = Job::new("time")
        .parallelism(scripts.len() as u32)
        .commit_policy(policy)
        .source("numbers", sources(scripts))
        .map("decode", number)
        .watermarks("time", strategy)
        .atomic_sink("table", move |_| to.clone())
        .clock(Arc::new(scene.clock.clone()));
    (table, job.start().unwrap())
}

/// Commits when it is told to, and at the end.
fn never() -> CommitPolicy {
    let long = Duration::from_secs(1_000_000);
    CommitPolicy { max_age: long, max_age_without_rows: long, ..CommitPolicy::default() }
}

/// [TIM-05] [TIM-21] splits, watermark, questions and late records of an atomic job, up to its end.
#[tokio::test(start_paused = true)]
async fn atomic_job_keeps_time_and_shows_it() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let (table, mut job) = run(&scene, &scripts, never(), strategy());
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 100), (1, 50)]);
    until(&job.time(), |time| time.at("table") == 39).await;
    scripts[0].news(1, SplitEvent::EndOfPartition { position: 1 });
    until(&job.time(), |time| time.split(1).status == SplitStatus::CaughtUp).await;
    scene.clock.set(1_001);
    scripts[0].until(|seen| seen.asked.len() == 1).await;
    scripts[0].answer(1, 1);
    let time = until(&job.time(), |time| time.at("table") == 89).await;
    assert_eq!(time.split(1).status, SplitStatus::Idle);
    scripts[0].read(&[(1, 60), (0, 95)]);
    until(&job.time(), |time| time.stage("table")[0].late == 1 && time.source(0).late == 1).await;
    scripts[0].end();
    let report = job.wait().await.unwrap();
    assert_eq!(report.balance.tally.read, 4);
    assert_eq!(table.0.lock().unwrap().committed, [100, 50, 60, 95]);
    assert_eq!(job.time().snapshot().source(0).watermark, Timestamp::MAX);
    assert_eq!(job.time().snapshot().at("table"), i64::MAX);
}

/// [TIM-17] [TIM-18] a split that is ahead rests; the stop does not wait for it, and is no end of all input.
#[tokio::test(start_paused = true)]
async fn atomic_job_stops_while_a_split_rests() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let within = strategy().within_drift("group", Duration::from_millis(100));
    let (table, mut job) = run(&scene, &scripts, never(), within);
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 1_000), (1, 50)]);
    scripts[0].until(|seen| seen.resting == [0]).await;
    scripts[0].read(&[(1, 950)]);
    scripts[0].until(|seen| seen.resting.is_empty()).await;
    scripts[0].read(&[(0, 5_000)]);
    scripts[0].until(|seen| seen.resting == [0]).await;
    job.stop();
    job.wait().await.unwrap();
    assert_eq!(table.0.lock().unwrap().committed, [1_000, 50, 950, 5_000]);
    assert_eq!(job.time().snapshot().at("table"), 939);
}

/// [TIM-12] a loss takes a split away and drops the interval: what is read again is not late, and what rested goes on.
#[tokio::test(start_paused = true)]
async fn time_begins_anew_where_an_interval_is_dropped() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let within = strategy().within_drift("group", Duration::from_millis(100));
    let (table, mut job) = run(&scene, &scripts, never(), within);
    scripts[0].assign(&[0, 1]);
    scripts[0].read(&[(0, 1_000), (1, 50)]);
    scripts[0].until(|seen| seen.resting == [0]).await;
    until(&job.time(), |time| time.at("table") == 39).await;
    scripts[0].say(Polled::Lost(vec![split(1)]));
    scripts[0].until(|seen| seen.added.len() == 3).await;
    assert_eq!(scripts[0].seen().added[2], (0, 0));
    assert!(scripts[0].seen().resting.is_empty(), "it is ahead of nobody");
    let time =
        until(&job.time(), |time| time.source(0).splits.len() == 1 && time.at("table") == i64::MIN).await;
    assert_eq!(time.source(0).watermark, Timestamp::MIN);
    scripts[0].read(&[(0, 1_000), (0, 900)]);
    until(&job.time(), |time| time.at("table") == 989).await;
    assert_eq!(job.time().snapshot().source(0).late, 0);
    scripts[0].say(Polled::Revoked { splits: vec![split(0)], within: Duration::from_secs(5) });
    until(&job.time(), |time| time.source(0).splits.is_empty()).await;
    assert_eq!(table.0.lock().unwrap().committed, [1_000, 900]);
    scripts[0].end();
    job.wait().await.unwrap();
}

/// A watermark between two intervals opens none: the age of an interval is that of its first record.
#[tokio::test(start_paused = true)]
async fn watermark_does_not_age_an_interval() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let policy = CommitPolicy { max_age: INTERVAL * 4, ..CommitPolicy::default() };
    let each = levada_core::time::WatermarkStrategy::custom(|| Box::new(Counting(0)));
    let (table, job) = run(&scene, &scripts, policy, each);
    scripts[0].assign(&[0]);
    until(&job.time(), |time| time.at("table") >= 3).await;
    pass(8).await;
    let begun = tokio::time::Instant::now();
    scripts[0].read(&[(0, 1_000)]);
    until(&job.time(), |_| table.0.lock().unwrap().at.len() == 1).await;
    let age = table.0.lock().unwrap().at[0] - begun;
    assert!(age >= INTERVAL * 4, "{age:?}");
}

/// A watermark with every tick.
#[derive(Debug)]
struct Counting(i64);

impl<T> levada_core::time::WatermarkGenerator<T> for Counting {
    fn on_periodic(&mut self, _: Timestamp) -> Option<Timestamp> {
        self.0 += 1;
        Some(Timestamp(self.0))
    }
}

/// [TIM-03]
#[tokio::test(start_paused = true)]
async fn record_without_a_timestamp_ends_an_atomic_job_by_name() {
    let scene = Scene::default();
    let scripts = scripts(1);
    let none = strategy().timestamps(TimestampFrom::Origin, WithoutTimestamp::Fail);
    let (table, mut job) = run(&scene, &scripts, never(), none);
    scripts[0].assign(&[0]);
    scripts[0].read(&[(0, 1)]);
    scripts[0].read_without_timestamp(0);
    let error = job.wait().await.unwrap_err();
    let JobError::NoTimestamp { coordinates } = &error else { panic!("{error:?}") };
    assert_eq!(coordinates.to_string(), "t-0@1");
    assert_eq!(table.0.lock().unwrap().committed, [0; 0]);
}
