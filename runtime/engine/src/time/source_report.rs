//! What one subtask of a source notes down for those who look.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::time::{Blocked, MissingTimestamps, Pause, SourceTime, SplitStatus};
use levada_core::{SplitId, StreamStatus, Timestamp};

use super::snapshot::{SourceTimes, SplitTimes, TimeSpent};
use super::status::locked;

/// How one subtask's time stands. Counts go on over restarts.
#[derive(Debug)]
pub(super) struct SourceBook {
    watermark: Timestamp,
    status: StreamStatus,
    splits: BTreeMap<SplitId, SplitBook>,
    late: Count,
    taken_from_origin: Count,
    refused: Count,
    failed: Count,
}

/// A count that begins anew with each attempt, summed over all.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    before: u64,
    now: u64,
}

impl Count {
    fn total(self) -> u64 {
        self.before + self.now
    }

    fn begin(&mut self) {
        *self = Self { before: self.total(), now: 0 };
    }
}

#[derive(Debug)]
struct SplitBook {
    status: SplitStatus,
    since: Timestamp,
    watermark: Timestamp,
    /// Up to `settled_at`.
    spent: TimeSpent,
    settled_at: Timestamp,
}

impl SplitBook {
    fn settle(&mut self, now: Timestamp) {
        let time = now.since(self.settled_at);
        *spent_as(&mut self.spent, self.status) += time;
        self.settled_at = now;
    }
}

fn spent_as(spent: &mut TimeSpent, status: SplitStatus) -> &mut Duration {
    match status {
        SplitStatus::Idle => &mut spent.idle,
        SplitStatus::Blocked(Blocked::Paused(pauses)) if pauses.contains(Pause::Drift) => &mut spent.ahead,
        SplitStatus::Blocked(_) => &mut spent.blocked,
        _ => &mut spent.active,
    }
}

impl Default for SourceBook {
    fn default() -> Self {
        Self {
            watermark: Timestamp::MIN,
            status: StreamStatus::Active,
            splits: BTreeMap::new(),
            late: Count::default(),
            taken_from_origin: Count::default(),
            refused: Count::default(),
            failed: Count::default(),
        }
    }
}

impl SourceTimes {
    pub(super) fn new(uid: String, subtask: u32) -> Self {
        Self {
            uid,
            subtask,
            watermark: Timestamp::MIN,
            status: StreamStatus::Active,
            late: 0,
            missing: MissingTimestamps::default(),
            splits: Vec::new(),
        }
    }
}

impl SourceBook {
    pub(super) fn times(&self, at: Timestamp, empty: SourceTimes) -> SourceTimes {
        let of_split = |(split, book): (&SplitId, &SplitBook)| {
            let mut spent = book.spent;
            *spent_as(&mut spent, book.status) += at.since(book.settled_at);
            let SplitBook { status, since, watermark, .. } = *book;
            SplitTimes { split: split.clone(), status, since, watermark, spent }
        };
        SourceTimes {
            watermark: self.watermark,
            status: self.status,
            late: self.late.total(),
            missing: MissingTimestamps {
                taken_from_origin: self.taken_from_origin.total(),
                refused: self.refused.total(),
                failed: self.failed.total(),
            },
            splits: self.splits.iter().map(of_split).collect(),
            ..empty
        }
    }
}

/// Notes for one subtask.
#[derive(Debug)]
pub(super) struct SourceReport(Arc<Mutex<SourceBook>>);

impl SourceReport {
    pub(super) fn begin(book: Arc<Mutex<SourceBook>>) -> Self {
        let report = Self(book);
        report.begin_anew();
        report
    }

    /// Forgets the splits and the watermark, and keeps what was counted.
    pub(super) fn begin_anew(&self) {
        let mut book = locked(&self.0);
        book.watermark = Timestamp::MIN;
        book.status = StreamStatus::Active;
        book.splits.clear();
        let SourceBook { late, taken_from_origin, refused, failed, .. } = &mut *book;
        [late, taken_from_origin, refused, failed].into_iter().for_each(Count::begin);
    }

    /// All splits have come to their ends.
    pub(super) fn ended(&self) {
        locked(&self.0).splits.clear();
    }

    pub(super) fn added(&self, split: &SplitId, now: Timestamp) {
        let new = || SplitBook {
            status: SplitStatus::Active,
            since: now,
            watermark: Timestamp::MIN,
            spent: TimeSpent::default(),
            settled_at: now,
        };
        locked(&self.0).splits.entry(split.clone()).or_insert_with(new);
    }

    pub(super) fn removed(&self, split: &SplitId) {
        locked(&self.0).splits.remove(split);
    }

    pub(super) fn status(&self, split: &SplitId, status: SplitStatus, now: Timestamp) {
        if let Some(book) = locked(&self.0).splits.get_mut(split) {
            book.settle(now);
            (book.status, book.since) = (status, now);
        }
    }

    /// Splits were read, and then nobody could look at them for a while. [TIM-06]
    pub(super) fn held_up<T>(&self, time: &SourceTime<T>, waited: Duration, now: Timestamp) {
        let mut book = locked(&self.0);
        for (split, _) in time.counting() {
            let Some(book) = book.splits.get_mut(split) else { continue };
            book.settle(now);
            let kind = spent_as(&mut book.spent, book.status);
            let waited = waited.min(*kind);
            *kind -= waited;
            book.spent.blocked += waited;
        }
    }

    /// Notes the watermarks of the splits that count, and the counts.
    pub(super) fn publish<T>(&self, time: &SourceTime<T>, missing: MissingTimestamps) {
        let mut book = locked(&self.0);
        for (split, watermark) in time.counting() {
            if let Some(book) = book.splits.get_mut(split) {
                book.watermark = watermark;
            }
        }
        (book.watermark, book.status) = (time.merged(), time.status());
        book.late.now = time.late();
        book.taken_from_origin.now = missing.taken_from_origin;
        (book.refused.now, book.failed.now) = (missing.refused, missing.failed);
    }

    /// Notes one split's watermark.
    pub(super) fn publish_split<T>(&self, time: &SourceTime<T>, split: &SplitId) {
        let mut book = locked(&self.0);
        if let (Some(known), Some((_, watermark))) = (book.splits.get_mut(split), time.split(split)) {
            known.watermark = watermark;
        }
    }

    /// Notes the merged watermark, the status, and how many records were late.
    pub(super) fn publish_merged<T>(&self, time: &SourceTime<T>) {
        let mut book = locked(&self.0);
        (book.watermark, book.status, book.late.now) = (time.merged(), time.status(), time.late());
    }
}
