//! Jobs over scripted sources.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::template::WriteContext;
use levada_core::time::{MissingTimestamps, SplitStatus, WatermarkStrategy};
use levada_core::{BoxError, Record, StreamStatus, Timestamp};
use levada_engine::store::Store;
use levada_engine::{
    CheckpointedHandle, CheckpointedJob, Flow, Input, Job, SplitTimes, StageTimes, TimeSnapshot, TimeSpent,
    TimeStatus,
};
use tokio::time::interval;

use crate::clock::TestClock;
use crate::scripted::{Script, Scripted};

pub(crate) const INTERVAL: Duration = WatermarkStrategy::<()>::DEFAULT_INTERVAL;

/// A record as the sink took it: what it is, its timestamp, and the watermark in front of it.
pub(crate) type Written = (i64, Option<i64>, i64);

#[derive(Debug, Default)]
pub(crate) struct Scene {
    pub(crate) clock: TestClock,
    pub(crate) written: Arc<Mutex<Vec<Written>>>,
}

/// Sources for so many subtasks.
pub(crate) fn scripts(subtasks: usize) -> Vec<Arc<Script>> {
    (0..subtasks).map(|_| Script::new()).collect()
}

pub(crate) fn sources(scripts: &[Arc<Script>]) -> impl Fn(u32) -> Scripted + Send + 'static {
    let scripts = scripts.to_vec();
    move |subtask| scripts[subtask as usize].source()
}

/// Reads a record's value.
pub(crate) fn number(input: Input<'_, ()>) -> Result<i64, BoxError> {
    Ok(std::str::from_utf8(input.value().unwrap_or_default())?.parse()?)
}

/// Bounded by 10 ms, idle after more than 1 s at the end.
pub(crate) fn strategy() -> WatermarkStrategy<i64> {
    let bounded = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(10));
    bounded.idle_after(Duration::from_secs(1)).unwrap()
}

impl Scene {
    /// A flow of numbers, up to where a strategy belongs.
    pub(crate) fn flow(scripts: &[Arc<Script>]) -> Flow<(), i64> {
        let parallelism = scripts.len() as u32;
        Self::flow_of(Job::new("time").parallelism(parallelism), scripts)
    }

    pub(crate) fn flow_of(job: Job, scripts: &[Arc<Script>]) -> Flow<(), i64> {
        job.source("numbers", sources(scripts)).map("decode", number).checkpointed()
    }

    pub(crate) fn note(
        &self,
    ) -> impl FnMut(&Record<i64>, &WriteContext) -> Result<(), BoxError> + Clone + Send + 'static {
        let written = Arc::clone(&self.written);
        move |record, ctx| {
            let timestamp = record.timestamp().map(|at| at.0);
            written.lock().unwrap().push((record.item, timestamp, ctx.watermark.0));
            Ok(())
        }
    }

    pub(crate) async fn start(&self, job: CheckpointedJob) -> CheckpointedHandle {
        let store = Store::open("memory:").await.unwrap();
        job.clock(Arc::new(self.clock.clone())).start(store).unwrap()
    }

    /// Starts the usual job: a strategy, an exchange, a sink that notes what it sees.
    pub(crate) async fn run(
        &self,
        scripts: &[Arc<Script>],
        strategy: WatermarkStrategy<i64>,
    ) -> CheckpointedHandle {
        let flow = Self::flow(scripts).watermarks("time", strategy);
        self.start(flow.key_by("by itself", |number| *number).for_each("note", self.note())).await
    }

    pub(crate) fn written(&self) -> Vec<Written> {
        self.written.lock().unwrap().clone()
    }
}

/// Waits until time stands as the test says; time goes on meanwhile wherever all tasks wait.
pub(crate) async fn until(status: &TimeStatus, condition: impl Fn(&TimeSnapshot) -> bool) -> TimeSnapshot {
    let mut looks = interval(INTERVAL);
    for _ in 0..1_000 {
        let snapshot = status.snapshot();
        if condition(&snapshot) {
            return snapshot;
        }
        looks.tick().await;
    }
    panic!("time stands still: {:#?}", status.snapshot());
}

/// Lets so many intervals pass, each with its tick.
pub(crate) async fn pass(intervals: u32) {
    let mut passing = interval(INTERVAL);
    for _ in 0..=intervals {
        passing.tick().await;
    }
}

/// A subtask of the source, or what is true of one that has said nothing yet.
#[derive(Debug)]
pub(crate) struct OfSource {
    pub(crate) watermark: Timestamp,
    pub(crate) status: StreamStatus,
    pub(crate) late: u64,
    pub(crate) missing: MissingTimestamps,
    pub(crate) splits: Vec<SplitTimes>,
}

/// A split, or what is true of one that is not there yet.
#[derive(Debug)]
pub(crate) struct OfSplit {
    pub(crate) status: SplitStatus,
    pub(crate) since: Timestamp,
    pub(crate) watermark: Timestamp,
    pub(crate) spent: TimeSpent,
}

pub(crate) trait Look {
    fn source(&self, subtask: u32) -> OfSource;
    fn split(&self, index: u32) -> OfSplit;
    fn stage(&self, uid: &str) -> Vec<&StageTimes>;
    /// Where the watermark stands in all subtasks of a stage; they are to agree.
    fn at(&self, uid: &str) -> i64;
}

impl Look for TimeSnapshot {
    fn source(&self, subtask: u32) -> OfSource {
        let nothing = OfSource {
            watermark: Timestamp::MIN,
            status: StreamStatus::Active,
            late: 0,
            missing: MissingTimestamps::default(),
            splits: Vec::new(),
        };
        let known = self.sources.iter().find(|source| source.subtask == subtask);
        known.map_or(nothing, |source| OfSource {
            watermark: source.watermark,
            status: source.status,
            late: source.late,
            missing: source.missing,
            splits: source.splits.clone(),
        })
    }

    fn split(&self, index: u32) -> OfSplit {
        let mut splits = self.sources.iter().flat_map(|source| &source.splits);
        let known = splits.find(|times| times.split.index == index);
        OfSplit {
            status: known.map_or(SplitStatus::Active, |split| split.status),
            since: known.map_or(Timestamp::MIN, |split| split.since),
            watermark: known.map_or(Timestamp::MIN, |split| split.watermark),
            spent: known.map_or_else(TimeSpent::default, |split| split.spent),
        }
    }

    fn stage(&self, uid: &str) -> Vec<&StageTimes> {
        self.stages.iter().filter(|stage| stage.uid == uid).collect()
    }

    fn at(&self, uid: &str) -> i64 {
        let smallest = self.stage(uid).into_iter().map(|stage| stage.watermark).min();
        smallest.unwrap_or(Timestamp::MIN).0
    }
}
