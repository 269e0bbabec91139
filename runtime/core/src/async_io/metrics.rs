//! What is counted of calls.

use std::time::Duration;

/// The upper bounds of a histogram's buckets, in microseconds; one more bucket holds what is longer.
const BOUNDS: [u64; 16] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000,
];

/// Durations, counted in buckets from 0.1 ms to 10 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        let micros = duration.as_micros();
        let bucket = BOUNDS.partition_point(|bound| u128::from(*bound) < micros);
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(duration);
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Histogram) {
        for (count, others) in self.counts.iter_mut().zip(other.counts) {
            *count += others;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// Returns how many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Walks through the buckets: the longest duration of each, `None` for the last one, and how many were in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = BOUNDS.into_iter().map(Duration::from_micros).map(Some).chain([None]);
        bounds.zip(self.counts)
    }
}

/// What was counted of the calls of one subtask. [ASY-15]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CallMetrics {
    /// Inputs that have a slot and no result yet: called, waiting for a retry, or gathered for a call.
    pub in_flight: u64,
    /// Elements that take up capacity: those in flight, results that may not leave yet, and watermarks.
    pub in_queue: u64,
    /// Inputs that wait for a slot.
    pub waiting: u64,
    /// How long inputs have waited for a slot.
    pub queue_wait: Histogram,
    /// How long calls took that were answered, each attempt by itself.
    pub latency: Histogram,
    /// Calls that were begun.
    pub calls: u64,
    /// Inputs whose time was up.
    pub timeouts: u64,
    /// Inputs that were called again.
    pub retries: u64,
    /// Results that came for an input which had one already, or whose time was up.
    pub late: u64,
    /// Inputs dropped by policy.
    pub dropped: u64,
    /// Inputs refused by policy: dead letters.
    pub refused: u64,
    /// Calls, or polls of their futures, that blocked the stage.
    pub blocking: u64,
}

impl CallMetrics {
    /// Adds what was counted elsewhere, or before: counts and histograms, not what is there at the moment.
    pub fn add_counts(&mut self, other: &CallMetrics) {
        self.queue_wait.add(&other.queue_wait);
        self.latency.add(&other.latency);
        self.calls += other.calls;
        self.timeouts += other.timeouts;
        self.retries += other.retries;
        self.late += other.late;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.blocking += other.blocking;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [ASY-15] a bound belongs to its bucket.
    #[test]
    fn durations_fall_into_their_buckets() {
        let mut histogram = Histogram::default();
        for millis in [1, 2, 3, 60_000] {
            histogram.record(Duration::from_millis(millis));
        }
        let filled: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        let at_most = |millis| Some(Duration::from_millis(millis));
        assert_eq!(filled, [(at_most(1), 1), (at_most(2), 1), (at_most(5), 1), (None, 1)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, Duration::from_millis(60_006)));
    }
}
