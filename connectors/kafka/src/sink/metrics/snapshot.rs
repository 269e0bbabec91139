//! The figures at one moment.

use std::time::Duration;

use super::distribution::Distribution;

/// How far a transaction is that is not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It is written to.
    Open,
    /// It is complete, and waits for its checkpoint.
    Prepared,
}

/// A transaction that is not decided.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStanding {
    /// Its transactional id.
    pub id: String,
    /// How far it is.
    pub phase: Phase,
    /// How long it is open. As long as it is written to, from the moment when its slot was opened; then by the broker's
    /// account, which begins with the first record.
    pub age: Duration,
    /// What is left of its timeout, nothing when that has passed; `None` where there is no timeout.
    pub left: Option<Duration>,
    /// Its records; zero as long as it is written to.
    pub records: u64,
}

/// What a transactional sink has done, and what it has not decided. All counts are since the process began.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct TransactionMetrics {
    /// Transactions that are not decided, by their ids.
    pub undecided: Vec<TransactionStanding>,
    /// Transactions that were begun, also those into which nothing was written in the end.
    pub begun: u64,
    /// Transactions that were committed; those that a start found and committed included.
    pub committed: u64,
    /// Transactions that were aborted.
    pub aborted: u64,
    /// Transactions that were to be committed and were gone. Must stay at zero.
    pub lost: u64,
    /// Records of these. Must stay at zero.
    pub lost_records: u64,
    /// Commits and aborts that were tried again: an answer was lost, or the coordinator was away or busy.
    pub retries: u64,
    /// Transactional ids of earlier attempts that were fenced.
    pub fenced: u64,
    /// Commit markers that coordinators have left out and this process has written: one for each partition of a transaction in
    /// which readers did not see it.
    pub markers_written: u64,
    /// Transactions that are committed, and that readers did not see in time and do not yet: readers of committed data stay in
    /// front of them.
    pub unseen: u64,
    /// From the call of a commit to the coordinator's answer, in microseconds.
    pub commit_micros: Distribution,
    /// Records of the transactions that were pre-committed.
    pub records: Distribution,
}

impl TransactionMetrics {
    /// Returns how many transactions are in a phase.
    pub fn count(&self, phase: Phase) -> usize {
        self.undecided.iter().filter(|one| one.phase == phase).count()
    }

    /// Returns the age of the oldest transaction that is not decided.
    pub fn oldest_age(&self) -> Option<Duration> {
        self.undecided.iter().map(|one| one.age).max()
    }

    /// Returns the least that is left to a transaction of its timeout.
    pub fn least_left(&self) -> Option<Duration> {
        self.undecided.iter().filter_map(|one| one.left).min()
    }
}
