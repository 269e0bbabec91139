//! How time stands in a job, as a value.

use std::time::Duration;

use levada_core::time::{MissingTimestamps, SplitStatus};
use levada_core::{SplitId, StreamStatus, Timestamp};

/// How time stands in a job, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeSnapshot {
    /// That moment, by the job's clock.
    pub at: Timestamp,
    /// The subtasks of the source that keep time, in order.
    pub sources: Vec<SourceTimes>,
    /// The subtasks of sinks and of late side outputs, in order.
    pub stages: Vec<StageTimes>,
}

impl TimeSnapshot {
    /// Returns how far a watermark is behind the wall clock; nothing where it is ahead. `None` before there is one, and at
    /// the end of all input.
    pub fn lag(&self, watermark: Timestamp) -> Option<Duration> {
        let is_time = watermark != Timestamp::MIN && watermark != Timestamp::MAX;
        is_time.then(|| self.at.since(watermark))
    }
}

/// How time stands in one subtask of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceTimes {
    /// The source.
    pub uid: String,
    /// The subtask.
    pub subtask: u32,
    /// The merged watermark of its splits; [`Timestamp::MIN`] before the first.
    pub watermark: Timestamp,
    /// Whether others wait for it.
    pub status: StreamStatus,
    /// Records that its own watermark had already covered, since the job was started.
    pub late: u64,
    /// Records without a timestamp, since the job was started.
    pub missing: MissingTimestamps,
    /// Its splits, in order. One that has ended, or was taken away, is not among them.
    pub splits: Vec<SplitTimes>,
}

/// How time stands in one split.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitTimes {
    /// The split.
    pub split: SplitId,
    /// What it is doing, with the reason if it is blocked.
    pub status: SplitStatus,
    /// Since when.
    pub since: Timestamp,
    /// Its watermark; [`Timestamp::MIN`] before the first.
    pub watermark: Timestamp,
    /// How its time was spent since it was added.
    pub spent: TimeSpent,
}

/// How the time of a split was spent. [TIM-21]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TimeSpent {
    /// Read, or at its end.
    pub active: Duration,
    /// Idle.
    pub idle: Duration,
    /// Kept from being read: by the user, by back-pressure, by the brokers, by an open transaction.
    pub blocked: Duration,
    /// Resting, because it is ahead of its group.
    pub ahead: Duration,
}

/// How time stands in one subtask of a stage behind the source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageTimes {
    /// The stage: a sink, or a late side output.
    pub uid: String,
    /// The subtask.
    pub subtask: u32,
    /// The watermark there; [`Timestamp::MIN`] before the first.
    pub watermark: Timestamp,
    /// Records that came behind a watermark that had covered them, since the job was started.
    pub late: u64,
}
