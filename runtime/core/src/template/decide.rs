//! What becomes of a checkpoint whose transactions wait for their commit, as a function over their fates.

use super::Fate;
use crate::checkpoint::CheckpointId;

/// What to do with the transactions of the newest complete checkpoint n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// All are visible or can be made so: restore n.
    CommitAll,
    /// Some of what n added is gone, or too near its timeout, and none of it visible: drop the rest of it, restore the
    /// checkpoint before, and read again.
    RollBack {
        /// The checkpoint before; none when n was the first.
        to: Option<CheckpointId>,
    },
    /// Some records are visible and others of the same checkpoint gone for good: only a human can say what now.
    Torn {
        /// How many transactions are gone.
        aborted: usize,
        /// How many transactions that cannot be taken back are visible.
        committed: usize,
    },
    /// The target has forgotten some transactions, and the others do not tell what became of these.
    Unknown {
        /// How many.
        unknown: usize,
    },
}

#[derive(Debug, Default)]
struct Count {
    committed: usize,
    aborted: usize,
    expiring: usize,
    unknown: usize,
}

impl Count {
    fn of<'a>(fates: impl Iterator<Item = &'a (CheckpointId, Fate)>) -> Self {
        let mut count = Self::default();
        for (_, fate) in fates {
            match fate {
                Fate::Pending => {}
                Fate::Committed => count.committed += 1,
                Fate::Aborted => count.aborted += 1,
                Fate::Expiring => count.expiring += 1,
                Fate::Unknown => count.unknown += 1,
            }
        }
        count
    }
}

/// Decides what becomes of checkpoint n from the fates of all its transactions, each with the checkpoint that covers it.
///
/// `previous` is the complete checkpoint before n. Transactions up to it are covered by it, too: they cannot be rolled
/// back, because its restore does not repeat their records. Those above it are what n added.
///
/// One that is [expiring](Fate::Expiring) counts as gone only where going back is still possible: where part of n is
/// visible, and where `previous` covers it, its commit is the one way out that loses and doubles nothing, so it is tried.
pub fn decide(fates: &[(CheckpointId, Fate)], previous: Option<CheckpointId>) -> Decision {
    let is_old = |checkpoint: CheckpointId| previous.is_some_and(|previous| checkpoint <= previous);
    let old = Count::of(fates.iter().filter(|(checkpoint, _)| is_old(*checkpoint)));
    let new = Count::of(fates.iter().filter(|(checkpoint, _)| !is_old(*checkpoint)));

    let aborted = old.aborted + new.aborted;
    let unknown = old.unknown + new.unknown;
    if old.aborted > 0 || (new.aborted > 0 && new.committed > 0) {
        return Decision::Torn { aborted, committed: old.committed + new.committed };
    }
    if unknown > 0 {
        return Decision::Unknown { unknown };
    }
    if new.aborted > 0 || (new.expiring > 0 && new.committed == 0) {
        return Decision::RollBack { to: previous };
    }
    Decision::CommitAll
}

#[cfg(test)]
mod tests {
    use super::Fate::{Aborted, Committed, Expiring, Pending, Unknown};
    use super::*;

    const OLD: CheckpointId = CheckpointId { attempt: 1, sequence: 1 };
    const NEW: CheckpointId = CheckpointId { attempt: 1, sequence: 2 };
    const BACK: Decision = Decision::RollBack { to: Some(OLD) };

    fn decided(new: &[Fate]) -> Decision {
        let fates: Vec<_> = new.iter().map(|fate| (NEW, *fate)).collect();
        decide(&fates, Some(OLD))
    }

    /// [TPL-10] every pair of fates of one checkpoint.
    #[test]
    fn pairs_of_fates_are_committed_rolled_back_torn_or_unknown() {
        let torn = Decision::Torn { aborted: 1, committed: 1 };
        let unknown = Decision::Unknown { unknown: 1 };
        let table = [
            ([Pending, Pending], Decision::CommitAll),
            ([Pending, Committed], Decision::CommitAll),
            ([Committed, Committed], Decision::CommitAll),
            ([Pending, Aborted], BACK),
            ([Aborted, Aborted], BACK),
            ([Committed, Aborted], torn),
            ([Pending, Expiring], BACK),
            ([Expiring, Expiring], BACK),
            ([Expiring, Aborted], BACK),
            ([Expiring, Committed], Decision::CommitAll),
            ([Unknown, Pending], unknown),
            ([Unknown, Committed], unknown),
            ([Unknown, Aborted], unknown),
            ([Unknown, Expiring], unknown),
            ([Unknown, Unknown], Decision::Unknown { unknown: 2 }),
        ];
        for ([one, other], expected) in table {
            assert_eq!(decided(&[one, other]), expected, "{one:?}, {other:?}");
            assert_eq!(decided(&[other, one]), expected, "{other:?}, {one:?}");
        }
        assert_eq!(decided(&[]), Decision::CommitAll);
    }

    /// What the checkpoint before covers, too, no roll-back can repeat: a commit in a hurry is all there is to try.
    #[test]
    fn expiring_transaction_of_the_checkpoint_before_is_committed_in_a_hurry() {
        assert_eq!(decide(&[(OLD, Expiring), (NEW, Pending)], Some(OLD)), Decision::CommitAll);
        assert_eq!(decide(&[(OLD, Expiring), (NEW, Aborted)], Some(OLD)), BACK);
        let torn = Decision::Torn { aborted: 1, committed: 0 };
        assert_eq!(decide(&[(OLD, Aborted), (NEW, Pending)], Some(OLD)), torn);
    }
}
