//! Checkpoints as values: their ids, and the barriers that separate what they cover from what they do not.

use std::fmt;

use crate::clock::Timestamp;

/// Names a checkpoint. Ordered, and never used twice, not even for a checkpoint that was never completed: sinks name their
/// transactions by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CheckpointId {
    /// The number of the lease entry under which the process runs; a takeover is a higher one.
    pub attempt: u64,
    /// Counts checkpoints of the attempt, from 1.
    pub sequence: u64,
}

impl CheckpointId {
    /// Names checkpoint `sequence` of `attempt`.
    pub fn new(attempt: u64, sequence: u64) -> Self {
        Self { attempt, sequence }
    }

    /// Returns the one after it in the same attempt.
    #[must_use]
    pub fn next(self) -> Self {
        Self { sequence: self.sequence + 1, ..self }
    }
}

/// Prints `attempt-sequence`: `3-17`.
impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.attempt, self.sequence)
    }
}

/// Separates the records that a checkpoint covers from those behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// What follows it.
    pub kind: BarrierKind,
    /// When the checkpoint was triggered, by the wall clock: the same for all tasks, and in every repetition.
    pub triggered_at: Timestamp,
}

/// What follows a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BarrierKind {
    /// More records.
    Checkpoint,
    /// Nothing: the job stops with this checkpoint.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::CheckpointId;

    /// [CHK-01]
    #[test]
    fn a_later_attempt_is_above_every_checkpoint_of_an_earlier_one() {
        let mut ids = [CheckpointId::new(2, 1), CheckpointId::new(1, 900), CheckpointId::new(1, 2).next()];
        ids.sort_unstable();
        assert_eq!(ids.map(|id| id.to_string()), ["1-3", "1-900", "2-1"]);
    }
}
