//! The line of the log that says where a pipeline stands.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use super::{Observation, Partition, Status};
use crate::checkpoint::units::rfc_3339;

/// How many partitions a line names; of more, it sums up.
pub const NAMED: usize = 8;

/// Logs where the pipeline stands: one line, however many partitions there are.
///
/// `before` is the observation that the line before was made of.
pub fn log(now: &Observation, before: &Observation) {
    let read = now.balance.tally.read;
    let written = now.balance.committed.written;
    let line = Line::of(now);
    tracing::info!(
        read,
        written,
        commits = now.commits,
        rows_per_commit = written.checked_div(now.commits).unwrap_or(0),
        records_per_s = per_second(read - before.balance.tally.read, now.behind(before.at)),
        skipped = now.balance.tally.skipped,
        late = line.late,
        without_timestamp = line.without_timestamp,
        watermark = line.watermark,
        watermark_lag = line.watermark_lag,
        lag = line.lag,
        lag_time = line.lag_time,
        status = line.statuses,
        partitions = line.partitions,
        "progress"
    );
}

/// What a line says of partitions and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Late records; nothing without watermarks.
    pub late: Option<u64>,
    /// Records that took Kafka's timestamp in place of their own; nothing without watermarks.
    pub without_timestamp: Option<u64>,
    /// The pipeline's watermark, RFC 3339.
    pub watermark: Option<String>,
    /// How far it is behind.
    pub watermark_lag: Option<String>,
    /// How many records all partitions together are behind.
    pub lag: u64,
    /// How old the record read last is in the partition that is the furthest behind.
    pub lag_time: String,
    /// How many partitions are doing what.
    pub statuses: String,
    /// The partitions that need a look first, at most [`NAMED`] of them.
    pub partitions: String,
}

impl Line {
    /// Makes the line of an observation.
    pub fn of(observation: &Observation) -> Self {
        let partitions = &observation.partitions;
        let watermark = observation.watermark();
        let counts = observation.late_and_without_time();
        let lag_time = partitions.iter().filter_map(|partition| partition.time_lag).max();
        Self {
            late: counts.map(|(late, _)| late),
            without_timestamp: counts.map(|(_, without)| without),
            watermark: watermark.map(rfc_3339),
            watermark_lag: watermark.map(|watermark| seconds(observation.behind(watermark))),
            lag: partitions.iter().filter_map(|partition| partition.lag).sum(),
            lag_time: seconds(lag_time.unwrap_or_default()),
            statuses: statuses(partitions),
            partitions: worst(partitions),
        }
    }
}

/// Counts the partitions by what they are doing: `3 active, 1 idle`.
fn statuses(partitions: &[Partition]) -> String {
    let counted = ["active", "caught_up", "idle", "blocked"].map(|name| {
        let count = partitions.iter().filter(|partition| partition.status.name() == name).count();
        (count > 0).then(|| format!("{count} {}", name.replace('_', " ")))
    });
    counted.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Names the blocked ones first, then the furthest behind; among equals, in their order.
fn worst(partitions: &[Partition]) -> String {
    let mut ranked: Vec<_> = partitions.iter().collect();
    ranked.sort_by_key(|partition| {
        let is_blocked = matches!(partition.status, Status::Blocked { .. });
        Reverse((partition.is_hanging, is_blocked, partition.lag))
    });
    let named: Vec<_> = ranked.iter().take(NAMED).map(|partition| named(partition)).collect();
    let mut text = named.join("; ");
    if let Some(more) = partitions.len().checked_sub(NAMED).filter(|more| *more > 0) {
        // Writing to a string cannot fail.
        let _ = write!(text, "; and {more} more");
    }
    text
}

/// Says how one partition stands: `flights-0 at 10 of 15, lag 5 and 3.2s, watermark 2013-01-01T00:00:00.000Z, active`.
fn named(partition: &Partition) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |value| value.to_string());
    let mut text = format!(
        "{} at {} of {}, lag {}",
        partition.split,
        number(partition.position),
        number(partition.high_watermark),
        number(partition.lag)
    );
    // Writing to a string cannot fail.
    if let Some(lag) = partition.time_lag.filter(|lag| !lag.is_zero()) {
        let _ = write!(text, " and {}", seconds(lag));
    }
    if let Some(watermark) = partition.watermark {
        let _ = write!(text, ", watermark {}", rfc_3339(watermark));
    }
    let _ = write!(text, ", {}", partition.status);
    text
}

fn per_second(records: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    records.saturating_mul(1000).checked_div(millis).unwrap_or(0)
}

/// Writes a duration in seconds with a tenth: of the lag of event time of years ago, too, so it can be compared.
fn seconds(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_that_has_passed() {
        assert_eq!(per_second(500, Duration::from_millis(200)), 2500);
        assert_eq!(per_second(500, Duration::ZERO), 0, "a clock that was set back");
    }
}
