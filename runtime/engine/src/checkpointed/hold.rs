//! Whether a source must wait until it is stored where it starts.
//!
//! ```text
//!   poll ─▶ new starts, found out at this moment ── StartsFound ──▶ coordinator ── inject(n) ──▶ snapshot(n), with them
//!             │ held: nothing is read                                                                │
//!             └──────────────────────────────── complete(n) ◀── entry of the log ◀───────────────────┘
//! ```
//!
//! Whoever has seen a record can rely on its start: no crash makes the next attempt find out another one.

use levada_core::CheckpointId;

/// Keeps a source from reading while no complete checkpoint holds its starts.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// The last checkpoint that the source was snapshotted for.
    marked: Option<CheckpointId>,
    is_held: bool,
    /// The last checkpoint in which the starts are not.
    behind: Option<CheckpointId>,
}

impl Hold {
    /// The source was snapshotted.
    pub(super) fn mark(&mut self, checkpoint: CheckpointId) {
        self.marked = Some(checkpoint);
    }

    /// Holds the source; returns the last checkpoint in which its starts are not.
    pub(super) fn begin(&mut self) -> Option<CheckpointId> {
        (self.is_held, self.behind) = (true, self.marked);
        self.behind
    }

    /// A checkpoint is complete.
    pub(super) fn complete(&mut self, checkpoint: CheckpointId) {
        self.is_held &= Some(checkpoint) <= self.behind;
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [SRC-13] a checkpoint that was on its way when the starts were found does not hold them.
    #[test]
    fn only_a_checkpoint_behind_the_starts_lets_the_source_go() {
        let id = |sequence| CheckpointId::new(1, sequence);
        let mut hold = Hold::default();
        hold.mark(id(1));
        assert!(!hold.is_held());
        assert_eq!(hold.begin(), Some(id(1)));
        hold.mark(id(2));
        hold.complete(id(1));
        assert!(hold.is_held());
        hold.complete(id(2));
        assert!(!hold.is_held());
    }
}
