//! The account behind the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::Timestamp;

use super::snapshot::{Phase, TransactionMetrics, TransactionStanding};

/// Counts for all sinks that share it, and tells how they stand. Clones are the same account.
#[derive(Debug, Clone, Default)]
pub struct SinkMetrics(Arc<Mutex<Account>>);

#[derive(Debug, Default)]
struct Account {
    undecided: BTreeMap<String, Undecided>,
    /// By transactional id.
    unseen: BTreeSet<String>,
    /// What has come to an end; its own list of the undecided is empty.
    counted: TransactionMetrics,
}

#[derive(Debug, Clone, Copy)]
struct Undecided {
    phase: Phase,
    since: Timestamp,
    timeout: Option<Duration>,
    records: u64,
}

impl Undecided {
    fn standing(self, id: &str, now: Timestamp) -> TransactionStanding {
        let age = now.since(self.since);
        let left = self.timeout.map(|timeout| timeout.saturating_sub(age));
        TransactionStanding { id: id.to_owned(), phase: self.phase, age, left, records: self.records }
    }
}

impl SinkMetrics {
    /// Makes an account of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the figures; `now` is what ages are told by.
    pub fn snapshot(&self, now: Timestamp) -> TransactionMetrics {
        let account = self.account();
        let undecided = account.undecided.iter().map(|(id, one)| one.standing(id, now)).collect();
        let unseen = account.unseen.len() as u64;
        TransactionMetrics { undecided, unseen, ..account.counted.clone() }
    }

    pub(crate) fn note_begun(&self, id: &str, since: Timestamp, timeout: Option<Duration>) {
        let mut account = self.account();
        account.counted.begun += 1;
        let open = Undecided { phase: Phase::Open, since, timeout, records: 0 };
        account.undecided.insert(id.to_owned(), open);
    }

    /// Its slot was opened in vain, or its fate is somebody else's from now on.
    pub(crate) fn forget(&self, id: &str) {
        self.account().undecided.remove(id);
    }

    pub(crate) fn note_prepared(&self, id: &str, since: Timestamp, timeout: Option<Duration>, records: u64) {
        let mut account = self.account();
        account.counted.records.add(records as f64);
        account
            .undecided
            .insert(id.to_owned(), Undecided { phase: Phase::Prepared, since, timeout, records });
    }

    /// A start has found it waiting.
    pub(crate) fn note_found(&self, id: &str, since: Timestamp, timeout: Option<Duration>, records: u64) {
        let found = Undecided { phase: Phase::Prepared, since, timeout, records };
        self.account().undecided.insert(id.to_owned(), found);
    }

    pub(crate) fn note_committed(&self, id: &str, took: Duration) {
        let mut account = self.account();
        account.undecided.remove(id);
        account.counted.committed += 1;
        account.counted.commit_micros.add(took.as_secs_f64() * 1e6);
    }

    pub(crate) fn note_aborted(&self, id: &str) {
        let mut account = self.account();
        account.undecided.remove(id);
        account.counted.aborted += 1;
    }

    pub(crate) fn note_lost(&self, id: &str, records: u64) {
        let mut account = self.account();
        account.undecided.remove(id);
        account.counted.lost += 1;
        account.counted.lost_records += records;
    }

    pub(crate) fn note_retry(&self) {
        self.account().counted.retries += 1;
    }

    pub(crate) fn note_marker_written(&self) {
        self.account().counted.markers_written += 1;
    }

    /// Readers do not see it, longer than a commit takes.
    pub(crate) fn note_unseen(&self, id: &str) {
        self.account().unseen.insert(id.to_owned());
    }

    pub(crate) fn note_seen(&self, id: &str) {
        self.account().unseen.remove(id);
    }

    pub(crate) fn note_fenced(&self, ids: u64) {
        self.account().counted.fenced += ids;
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // Each change is whole when a panic could come.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

    /// [KSK-27] the account's part: what is not decided has an age, and what is left of its timeout.
    #[test]
    fn undecided_transaction_has_an_age_and_time_left() {
        let metrics = SinkMetrics::new();
        metrics.note_begun("a", Timestamp(0), TIMEOUT);
        metrics.note_prepared("a", Timestamp(5_000), TIMEOUT, 7);
        metrics.note_begun("b", Timestamp(20_000), None);
        let seen = metrics.snapshot(Timestamp(30_000));
        assert_eq!((seen.count(Phase::Open), seen.count(Phase::Prepared)), (1, 1));
        let seconds = Duration::from_secs;
        assert_eq!((seen.oldest_age(), seen.least_left()), (Some(seconds(25)), Some(seconds(35))));
        assert_eq!(metrics.snapshot(Timestamp(90_000)).least_left(), Some(Duration::ZERO));
    }

    /// [KSK-27] the account's part: whatever ends is counted once, and stands no more.
    #[test]
    fn transactions_that_end_are_counted_by_how() {
        let metrics = SinkMetrics::new();
        for id in ["committed", "aborted", "lost", "left"] {
            metrics.note_begun(id, Timestamp(0), TIMEOUT);
            metrics.note_prepared(id, Timestamp(0), TIMEOUT, 9);
        }
        metrics.note_committed("committed", Duration::from_millis(2));
        metrics.note_aborted("aborted");
        metrics.note_lost("lost", 9);
        metrics.forget("left");
        let seen = metrics.snapshot(Timestamp(0));
        assert_eq!((seen.begun, seen.committed, seen.aborted, seen.lost, seen.lost_records), (4, 1, 1, 1, 9));
        assert_eq!((seen.undecided, seen.commit_micros.count(), seen.records.sum()), (vec![], 1, 36.0));
    }
}
