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
    /// How many intervals were committed.
    pub commits: u64,
}

impl Progress {
    /// Returns how far all splits together have moved since they were claimed, in positions.
    pub fn moved(&self) -> u64 {
        let distance = |(split, at): (&_, &levada_core::Position)| {
            let start = self.started_at.get(split).map_or(at.next, |start| start.next);
            at.next.saturating_sub(start)
        };
        self.positions.iter().map(distance).sum()
    }
}
