//! What can be seen of a running source from outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use levada_core::SplitId;
use levada_core::time::OpenTransaction;

use super::error::ClientError;
use super::standing::SplitStanding;

/// How long batches stood ready until a poll took them: the time that the receiver, the byte budget and the room for batches
/// took together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BatchWaits {
    /// Batches that were taken.
    pub batches: u64,
    /// The sum over all of them.
    pub total: Duration,
    /// The longest one.
    pub longest: Duration,
}

/// Counters and states of one source, shared with whoever shows them. All counts are since the source was opened.
#[derive(Debug, Default)]
pub struct SourceStatus {
    is_cut_off: AtomicBool,
    is_held_back: AtomicBool,
    errors: AtomicU64,
    stale: AtomicU64,
    pauses: AtomicU64,
    renewals: AtomicU64,
    ignored_events: AtomicU64,
    gaps: AtomicU64,
    lost: AtomicU64,
    commits: AtomicU64,
    failed_commits: AtomicU64,
    waits: Mutex<BatchWaits>,
    statistics: Mutex<Option<String>>,
    last_error: Mutex<Option<String>>,
    splits: Mutex<Vec<SplitStanding>>,
    /// The transactions that were found in front of splits, and where.
    transactions: Mutex<BTreeMap<SplitId, (u64, OpenTransaction)>>,
}

impl SourceStatus {
    /// Tells whether no broker can be reached. A state, not an end: reading goes on when one is back.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Tells whether all splits are paused because the byte budget is used up or nobody takes the records.
    pub fn is_held_back(&self) -> bool {
        self.is_held_back.load(Ordering::Relaxed)
    }

    /// Returns the number of errors that the client reported, retriable ones included.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Returns the number of records dropped because their split was removed, had ended or had been given another
    /// position.
    pub fn stale_records(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    /// Returns how often all splits were paused for want of budget.
    pub fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::Relaxed)
    }

    /// Returns how often a new client took the place of one that had lost all brokers: of the one that reads, or of the one that
    /// asks where splits end.
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Returns the number of events that nothing is done about.
    pub fn ignored_events(&self) -> u64 {
        self.ignored_events.load(Ordering::Relaxed)
    }

    /// Returns how often records were gone before they were read, and reading went on behind them.
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    /// Returns how many offsets lay in these gaps.
    pub fn lost_offsets(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns how often positions were committed for the group.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Returns how often committing them failed.
    pub fn failed_commits(&self) -> u64 {
        self.failed_commits.load(Ordering::Relaxed)
    }

    /// Returns how long batches have waited for a poll.
    pub fn batch_waits(&self) -> BatchWaits {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client's own statistics, a JSON document of librdkafka's, as of the last time that it told them: every
    /// `statistics.interval.ms`, a property of the client that is off unless set.
    pub fn statistics(&self) -> Option<String> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns where each split stands that is read now, as of about a second ago. Costs the reading nothing.
    pub fn splits(&self) -> Vec<SplitStanding> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the last error that the client reported.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets whether brokers can be reached, and tells whether they just went away.
    pub(super) fn set_cut_off(&self, is_cut_off: bool) -> bool {
        !self.is_cut_off.swap(is_cut_off, Ordering::Relaxed) && is_cut_off
    }

    pub(super) fn set_held_back(&self, is_held_back: bool) {
        self.is_held_back.store(is_held_back, Ordering::Relaxed);
        self.pauses.fetch_add(u64::from(is_held_back), Ordering::Relaxed);
    }

    pub(super) fn count_error(&self, error: &ClientError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    pub(super) fn count_commit(&self, is_ok: bool) {
        let count = if is_ok { &self.commits } else { &self.failed_commits };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_batch(&self, wait: Duration) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.batches += 1;
        waits.total += wait;
        waits.longest = waits.longest.max(wait);
    }

    pub(super) fn set_statistics(&self, statistics: &str) {
        *self.statistics.lock().unwrap_or_else(PoisonError::into_inner) = Some(statistics.to_owned());
    }

    pub(super) fn count_renewal(&self) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_stale(&self, records: u64) {
        self.stale.fetch_add(records, Ordering::Relaxed);
    }

    pub(super) fn count_gap(&self, offsets: u64) {
        self.gaps.fetch_add(1, Ordering::Relaxed);
        self.lost.fetch_add(offsets, Ordering::Relaxed);
    }

    pub(super) fn set_splits(&self, splits: Vec<SplitStanding>) {
        let mut current = self.splits.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, splits);
        drop(current);
        drop(old); // not while others wait
    }

    pub(super) fn note_transaction(&self, split: SplitId, position: u64, transaction: OpenTransaction) {
        let mut found = self.transactions.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(split, (position, transaction));
    }

    /// Returns the transaction in front of a split that stands at a position, if it was found.
    pub(super) fn transaction_at(&self, split: &SplitId, position: u64) -> Option<OpenTransaction> {
        let found = self.transactions.lock().unwrap_or_else(PoisonError::into_inner);
        found.get(split).filter(|(at, _)| *at == position).map(|(_, transaction)| *transaction)
    }

    pub(super) fn count_ignored_event(&self) {
        self.ignored_events.fetch_add(1, Ordering::Relaxed);
    }
}
