//! What travels between tasks, in line with the records.

use crate::batch::{Batch, BatchParts, Coordinates, Record};
use crate::checkpoint::Barrier;
use crate::clock::Timestamp;
use crate::error::BoxError;
use crate::split::Positions;

/// One element of a stream. Order in the stream is order of meaning: a commit point covers what came before it.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamElement<T> {
    /// Records.
    Batch(Batch<T>),
    /// A record that some step could not take; the sink stage decides what becomes of it.
    Refused(Refused),
    /// An offer to commit everything that came before.
    CommitPoint(CommitPoint),
    /// No record with this timestamp or an earlier one follows.
    Watermark(Timestamp),
    /// Whether records are to be expected.
    Status(StreamStatus),
    /// The line between what a checkpoint covers and what it does not.
    Barrier(Barrier),
    /// No more records follow. In a checkpointed job barriers still may.
    End,
}

/// Whether records are to be expected from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamStatus {
    /// They are: its watermark counts.
    Active,
    /// None for a while: others need not wait for its watermark.
    Idle,
}

/// An offer to commit: the positions that moved since the last offer, and what was counted on the way to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitPoint {
    /// Counts offers of one subtask.
    pub id: u64,
    /// Positions that moved since the offer before this one.
    pub positions: Positions,
    /// What was counted since the offer before this one.
    pub tally: Tally,
    /// Whether the sink must commit here (stop, end, revoke) instead of merging the offer with later ones.
    pub is_forced: bool,
}

impl CommitPoint {
    /// Takes a newer offer in, so that committing `self` covers both.
    pub fn merge(&mut self, newer: CommitPoint) {
        self.id = newer.id;
        self.positions.merge(newer.positions);
        self.tally.add(newer.tally);
        self.is_forced |= newer.is_forced;
    }
}

/// The terms of the balance that are counted before the sink.
///
/// They travel with the commit point and are added to the job's totals when their interval commits, never at read:
/// after a discard the same records are read and counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Records appended by the source.
    pub read: u64,
    /// Outputs beyond the first of steps that make several of one.
    pub expanded: u64,
    /// Inputs for which a step made no output on purpose.
    pub filtered: u64,
    /// Records refused and passed over by policy.
    pub skipped: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.read += other.read;
        self.expanded += other.expanded;
        self.filtered += other.filtered;
        self.skipped += other.skipped;
    }
}

/// A record that could not be taken, with its original bytes.
#[derive(Debug)]
pub struct Refused {
    parts: BatchParts,
    record: Record<()>,
    /// Why.
    pub reason: BoxError,
}

impl Refused {
    /// Refuses `record`, whose origin refers to `parts`.
    pub fn new(parts: BatchParts, record: Record<()>, reason: BoxError) -> Self {
        Self { parts, record, reason }
    }

    /// Names the record's place.
    pub fn coordinates(&self) -> Coordinates {
        self.original().coordinates(&self.record.origin)
    }

    /// Returns the record as it was read: a batch of one.
    pub fn original(&self) -> Batch<()> {
        self.parts.with_records(vec![self.record.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::{Position, SplitId};

    #[test]
    fn merged_offers_cover_both() {
        let positions = |index, next| [(SplitId::new("t", index), Position::at(next))].into_iter().collect();
        let tally = |read| Tally { read, ..Tally::default() };
        let mut first = CommitPoint { id: 1, positions: positions(0, 5), tally: tally(5), is_forced: true };
        first.merge(CommitPoint { id: 2, positions: positions(1, 9), tally: tally(9), is_forced: false });
        first.merge(CommitPoint { id: 3, positions: positions(0, 6), tally: tally(1), is_forced: false });
        assert_eq!((first.id, first.tally.read, first.is_forced), (3, 15, true));
        assert_eq!(first.positions.get(&SplitId::new("t", 0)), Some(&Position::at(6)));
        assert_eq!(first.positions.get(&SplitId::new("t", 1)), Some(&Position::at(9)));
    }
}
