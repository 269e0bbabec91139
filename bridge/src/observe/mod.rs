//! What can be seen of a running pipeline, from outside of it.
//!
//! ```text
//!   JobHandle::time ──────┐
//!   JobHandle::progress ──┼─▶ Observed ──observe──▶ Observation ──┬─▶ line: one line of the log, every 10 s
//!   KafkaSource::status ──┘      (handles)            (a value)   └─▶ metrics: text for Prometheus, at each scrape
//! ```
//!
//! Everything behind [`Observation`] is a function of that value: it waits for nothing and reads no clock.

mod client;
mod family;
pub mod line;
pub mod lookup;
pub mod metrics;
mod names;
mod partition;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Positions, SplitId, StreamStatus, Timestamp};
use levada_engine::async_io::CallStatus;
use levada_engine::{Balance, Progress, SourceTimes, StageTimes, TimeSnapshot, TimeStatus};
use levada_kafka::SourceStatus;
use tokio::sync::watch;

pub use client::ClientStatistics;
pub use lookup::{Lookup, ObservedLookup};
pub use partition::{Partition, Spent, Status};

/// A running pipeline, to be looked at. Looking costs it nothing that can be seen.
#[derive(Debug, Clone)]
pub struct Observed {
    pipeline: Arc<str>,
    time: TimeStatus,
    progress: watch::Receiver<Progress>,
    /// By subtask.
    sources: Arc<[Arc<SourceStatus>]>,
    calls: CallStatus,
    lookups: Arc<[ObservedLookup]>,
}

/// How a pipeline stands, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The pipeline's name.
    pub pipeline: Arc<str>,
    /// That moment.
    pub at: Timestamp,
    /// What became of the records that are committed.
    pub balance: Balance,
    /// Commits so far.
    pub commits: u64,
    /// The partitions that are read now, in order.
    pub partitions: Vec<Partition>,
    /// The subtasks of the source, in order.
    pub subtasks: Vec<Subtask>,
    /// The lookups, in the order of the pipeline.
    pub lookups: Vec<Lookup>,
}

/// How one subtask of the source stands. Counts are since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subtask {
    /// What concerns event time; `None` without watermarks.
    pub time: Option<SubtaskTime>,
    /// Whether no broker can be reached.
    pub is_cut_off: bool,
    /// Whether all its partitions rest because the memory is used up, or nobody takes the records.
    pub is_held_back: bool,
    /// How often they did.
    pub pauses: u64,
    /// Errors that the client reported, those that pass by themselves included.
    pub errors: u64,
    /// Records that were fetched and dropped, because their partition is read elsewhere by now.
    pub stale: u64,
    /// How often records were gone before they were read.
    pub gaps: u64,
    /// The offsets in these gaps.
    pub lost: u64,
    /// How often offsets were committed for the group.
    pub offset_commits: u64,
    /// How often that failed.
    pub failed_offset_commits: u64,
    /// Batches that were taken from the thread that reads.
    pub batches: u64,
    /// How long they had stood ready, all together.
    pub batch_wait: Duration,
    /// The longest of these times.
    pub longest_batch_wait: Duration,
    /// What the client tells of itself, if it was told to.
    pub client: Option<ClientStatistics>,
}

/// How event time stands in one subtask of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubtaskTime {
    /// The merged watermark, if there is one.
    pub watermark: Option<Timestamp>,
    /// Whether it has nothing to wait for.
    pub is_idle: bool,
    /// Records that the watermark had already covered.
    pub late: u64,
    /// Records without an event time that took Kafka's timestamp in its place.
    pub taken_from_record: u64,
    /// Records without an event time that ended the pipeline.
    pub failed: u64,
    /// The watermark that has come to the sink.
    pub at_sink: Option<Timestamp>,
    /// Records that came there behind a watermark that had covered them.
    pub late_at_sink: u64,
}

impl Observed {
    /// Looks at a job by its handles; `sources` are those of its subtasks, in order.
    pub fn new(
        pipeline: impl Into<Arc<str>>,
        time: TimeStatus,
        progress: watch::Receiver<Progress>,
        sources: impl Into<Arc<[Arc<SourceStatus>]>>,
    ) -> Self {
        let (calls, lookups) = (CallStatus::default(), Arc::default());
        Self { pipeline: pipeline.into(), time, progress, sources: sources.into(), calls, lookups }
    }

    /// Adds the lookups on the way.
    #[must_use]
    pub fn lookups(self, calls: CallStatus, lookups: impl Into<Arc<[ObservedLookup]>>) -> Self {
        Self { calls, lookups: lookups.into(), ..self }
    }

    /// Takes down how the pipeline stands now.
    pub fn observe(&self) -> Observation {
        let snapshot = self.time.snapshot();
        let progress = self.progress.borrow().clone();
        let mut partitions = BTreeMap::new();
        for source in self.sources.iter() {
            for standing in source.splits() {
                let partition = Partition::of(&standing, source, snapshot.at);
                partitions.insert(standing.split, partition);
            }
        }
        add_time(&mut partitions, &snapshot);
        add_committed(&mut partitions, &progress.positions);
        Observation {
            pipeline: Arc::clone(&self.pipeline),
            at: snapshot.at,
            balance: progress.balance,
            commits: progress.commits,
            partitions: partitions.into_values().collect(),
            subtasks: self
                .sources
                .iter()
                .zip(0..)
                .map(|(source, number)| subtask(source, number, &snapshot))
                .collect(),
            lookups: self.observe_lookups(),
        }
    }

    fn observe_lookups(&self) -> Vec<Lookup> {
        let stages = self.calls.snapshot();
        self.lookups.iter().map(|lookup| lookup.observe(&stages)).collect()
    }
}

fn add_time(partitions: &mut BTreeMap<SplitId, Partition>, snapshot: &TimeSnapshot) {
    for subtask in &snapshot.sources {
        for times in &subtask.splits {
            let partition = partitions
                .entry(times.split.clone())
                .or_insert_with(|| Partition::unread(times.split.clone()));
            partition.keep_time(times, snapshot);
        }
    }
}

fn add_committed(partitions: &mut BTreeMap<SplitId, Partition>, committed: &Positions) {
    for (split, partition) in partitions {
        partition.committed = committed.get(split).map(|position| position.next);
    }
}

fn subtask(source: &SourceStatus, number: u32, snapshot: &TimeSnapshot) -> Subtask {
    let times = snapshot.sources.iter().find(|times| times.subtask == number);
    // The job has one stage behind the source that reports: the sink.
    let waits = source.batch_waits();
    let at_sink = snapshot.stages.iter().find(|stage| stage.subtask == number);
    Subtask {
        time: times.map(|times| SubtaskTime::of(times, at_sink)),
        is_cut_off: source.is_cut_off(),
        is_held_back: source.is_held_back(),
        pauses: source.pauses(),
        errors: source.errors(),
        stale: source.stale_records(),
        gaps: source.gaps(),
        lost: source.lost_offsets(),
        offset_commits: source.commits(),
        failed_offset_commits: source.failed_commits(),
        batches: waits.batches,
        batch_wait: waits.total,
        longest_batch_wait: waits.longest,
        client: source.statistics().as_deref().and_then(ClientStatistics::of),
    }
}

impl SubtaskTime {
    fn of(times: &SourceTimes, at_sink: Option<&StageTimes>) -> Self {
        Self {
            watermark: known(times.watermark),
            is_idle: times.status == StreamStatus::Idle,
            late: times.late,
            taken_from_record: times.missing.taken_from_origin,
            failed: times.missing.failed,
            at_sink: at_sink.and_then(|stage| known(stage.watermark)),
            late_at_sink: at_sink.map_or(0, |stage| stage.late),
        }
    }
}

/// Leaves out the watermarks that are no time: none yet, and the end.
fn known(watermark: Timestamp) -> Option<Timestamp> {
    (watermark != Timestamp::MIN && watermark != Timestamp::MAX).then_some(watermark)
}

impl Observation {
    /// Returns the pipeline's watermark: the smallest of the subtasks that are not idle, or the highest where all are.
    /// Nothing while one that counts has none.
    pub fn watermark(&self) -> Option<Timestamp> {
        let times = || self.subtasks.iter().filter_map(|subtask| subtask.time);
        let mut active = times().filter(|time| !time.is_idle).peekable();
        match active.peek() {
            Some(_) => active.map(|time| time.watermark).min().flatten(),
            None => times().filter_map(|time| time.watermark).max(),
        }
    }

    /// Returns how far a watermark is behind the moment.
    pub fn behind(&self, watermark: Timestamp) -> Duration {
        self.at.since(watermark)
    }

    /// Returns late records, and records that took Kafka's timestamp in place of their own; nothing without watermarks.
    pub fn late_and_without_time(&self) -> Option<(u64, u64)> {
        let times = self.subtasks.iter().filter_map(|subtask| subtask.time);
        times.map(|time| (time.late, time.taken_from_record)).reduce(|a, b| (a.0 + b.0, a.1 + b.1))
    }
}
