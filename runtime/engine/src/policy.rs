//! When an offered commit point is taken.

use std::time::Duration;

use levada_core::Pending;

/// Bounds of a commit interval. The first one reached commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// Changes in the interval.
    pub max_rows: u64,
    /// Bytes in the interval, as the sink holds them.
    pub max_bytes: u64,
    /// Time since the interval's first change: the latency that batching may add.
    pub max_age: Duration,
    /// Time after which positions are committed though no row waits, so that filtered stretches are not read again.
    pub max_age_without_rows: Duration,
}

impl Default for CommitPolicy {
    fn default() -> Self {
        Self {
            max_rows: 10_000,
            max_bytes: 16 << 20,
            max_age: Duration::from_millis(200),
            max_age_without_rows: Duration::from_secs(1),
        }
    }
}

impl CommitPolicy {
    /// Tells how long after the interval began it must be committed, given what is pending.
    pub(crate) fn max_age(&self, pending: Pending) -> Duration {
        if pending.rows > 0 { self.max_age } else { self.max_age_without_rows }
    }

    /// Tells whether the interval is large enough to be committed whatever its age.
    pub(crate) fn is_full(&self, pending: Pending) -> bool {
        pending.rows >= self.max_rows || pending.bytes >= self.max_bytes
    }
}
