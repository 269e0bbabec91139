//! The balance: every record that was read is accounted for.

use std::fmt;

use levada_core::{Committed, Tally};
use thiserror::Error;

/// What became of every record of the committed intervals.
///
/// `read + expanded = written + coalesced + deleted + ignored + guarded + filtered + skipped`. Both sides are added
/// when an interval commits, never at read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// What was counted before the sink.
    pub tally: Tally,
    /// What the sink counted.
    pub committed: Committed,
}

/// The two sides of the balance differ: records were lost or doubled on the way. Always a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the balance does not close: {0}")]
pub struct Unbalanced(pub Balance);

impl Balance {
    /// Adds a committed interval.
    pub fn add(&mut self, tally: Tally, committed: Committed) {
        self.tally.add(tally);
        self.committed.add(committed);
    }

    /// Adds another balance.
    pub fn merge(&mut self, other: Balance) {
        self.add(other.tally, other.committed);
    }

    /// Compares the two sides.
    ///
    /// # Errors
    /// The balance itself, when they differ.
    pub fn check(&self) -> Result<(), Unbalanced> {
        let came_in = self.tally.read + self.tally.expanded;
        let went_out = self.committed.total() + self.tally.filtered + self.tally.skipped;
        if came_in == went_out { Ok(()) } else { Err(Unbalanced(*self)) }
    }
}

/// Prints the terms that are not zero: `27004 read = 27004 written`.
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Balance { tally, committed } = self;
        write!(f, "{} read", tally.read)?;
        if tally.expanded > 0 {
            write!(f, " + {} expanded", tally.expanded)?;
        }
        write!(f, " = {} written", committed.written)?;
        let others = [
            (committed.coalesced, "coalesced"),
            (committed.deleted, "deleted"),
            (committed.ignored, "ignored"),
            (committed.guarded, "guarded"),
            (tally.filtered, "filtered"),
            (tally.skipped, "skipped"),
        ];
        for (count, name) in others.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, " + {count} {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [BRG-09] the arithmetic: a record that is missing on either side is an error.
    #[test]
    fn balance_closes_only_when_every_record_is_accounted_for() {
        let tally = Tally { read: 10, expanded: 2, filtered: 1, skipped: 1 };
        let committed = Committed { written: 5, coalesced: 2, deleted: 1, ignored: 1, guarded: 1 };
        let mut balance = Balance::default();
        balance.add(tally, committed);
        assert_eq!(balance.check(), Ok(()));
        assert_eq!(
            balance.to_string(),
            "10 read + 2 expanded = 5 written + 2 coalesced + 1 deleted + 1 ignored + 1 guarded + 1 filtered + 1 skipped"
        );
        balance.add(Tally::default(), Committed { written: 1, ..Committed::default() });
        assert_eq!(balance.check(), Err(Unbalanced(balance)));
    }

    /// [BRG-09] zero terms are left out.
    #[test]
    fn terms_of_zero_are_left_out() {
        let mut balance = Balance::default();
        balance.add(Tally { read: 3, ..Tally::default() }, Committed { written: 3, ..Committed::default() });
        assert_eq!(balance.to_string(), "3 read = 3 written");
    }
}
