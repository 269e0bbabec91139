//! What a running job has committed so far, for whoever watches it.

use levada_core::Positions;

use crate::balance::Balance;

/// What is committed. Nothing read but not committed shows here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// What became of the records.
    pub balance: Balance,
    /// Where each claimed split began.
    pub started_at: Positions,
    /// Where each claimed split stands.
    pub positions: Positions,
    /// Where each claimed split ends, if the read is bounded.
    pub ends: Positions,
    /// How many intervals were committed.
    pub commits: u64,
}

impl Progress {
    /// Returns how many positions lie between start and end of the bounded read, and how many of them are behind.
    pub fn of_bounded(&self) -> (u64, u64) {
        let all = self.ends.iter().map(|(split, end)| {
            let start = self.started_at.get(split).map_or(end.next, |start| start.next);
            let at = self.positions.get(split).map_or(start, |at| at.next);
            (end.next.saturating_sub(start), at.min(end.next).saturating_sub(start))
        });
        all.fold((0, 0), |(total, done), (length, moved)| (total + length, done + moved))
    }
}
