//! Looking at how time stands.

use std::time::Duration;

use levada_core::time::SplitStatus;
use levada_core::{StreamStatus, Timestamp};
use levada_engine::{SourceTimes, SplitTimes, TimeSnapshot};

pub(crate) trait Look {
    /// A partition, once somebody reads it.
    fn split(&self, partition: u32) -> Option<&SplitTimes>;

    /// Why a partition is blocked, in the words for people; nothing where it is not.
    fn reason(&self, partition: u32) -> Option<String>;

    fn is_idle(&self, partition: u32) -> bool;

    fn is_caught_up(&self, partition: u32) -> bool;

    /// A partition's own watermark.
    fn watermark(&self, partition: u32) -> i64;

    /// Where the watermark stands in every subtask of the sink; the smallest, should they differ.
    fn at_sink(&self) -> i64;

    /// The subtask that reads a partition.
    fn reader_of(&self, partition: u32) -> Option<&SourceTimes>;

    /// Whether every subtask of the source is idle.
    fn is_all_idle(&self) -> bool;

    /// The time that partitions have spent idle, all together.
    fn spent_idle(&self) -> Duration;

    /// Records that were late where they were read, and at the sink.
    fn late(&self) -> (u64, u64);
}

impl Look for TimeSnapshot {
    fn split(&self, partition: u32) -> Option<&SplitTimes> {
        self.sources.iter().flat_map(|source| &source.splits).find(|times| times.split.index == partition)
    }

    fn reason(&self, partition: u32) -> Option<String> {
        match self.split(partition)?.status {
            SplitStatus::Blocked(blocked) => Some(blocked.to_string()),
            _ => None,
        }
    }

    fn is_idle(&self, partition: u32) -> bool {
        self.split(partition).is_some_and(|split| split.status == SplitStatus::Idle)
    }

    fn is_caught_up(&self, partition: u32) -> bool {
        self.split(partition).is_some_and(|split| split.status == SplitStatus::CaughtUp)
    }

    fn watermark(&self, partition: u32) -> i64 {
        self.split(partition).map_or(Timestamp::MIN, |split| split.watermark).0
    }

    fn at_sink(&self) -> i64 {
        self.stages.iter().map(|stage| stage.watermark).min().unwrap_or(Timestamp::MIN).0
    }

    fn reader_of(&self, partition: u32) -> Option<&SourceTimes> {
        self.sources.iter().find(|source| source.splits.iter().any(|times| times.split.index == partition))
    }

    fn is_all_idle(&self) -> bool {
        self.sources.iter().all(|source| source.status == StreamStatus::Idle)
    }

    fn spent_idle(&self) -> Duration {
        self.sources.iter().flat_map(|source| &source.splits).map(|times| times.spent.idle).sum()
    }

    fn late(&self) -> (u64, u64) {
        let at_source = self.sources.iter().map(|source| source.late).sum();
        (at_source, self.stages.iter().map(|stage| stage.late).sum())
    }
}
