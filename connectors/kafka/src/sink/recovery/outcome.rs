//! What became of a transaction, by what its coordinator says.
//!
//! ```text
//!   producer  epoch      state                            start      outcome
//!   ours      ours       Ongoing                          ours       pending, with the time that is left
//!   ours      ours       PrepareCommit, CompleteCommit    ours       committed
//!   ours      ours       PrepareAbort, CompleteAbort      ours       aborted by EndTxn
//!   ours      ours + 1   PrepareAbort, CompleteAbort      ours       aborted by its timeout, or by a fence
//!   ours      ours       any of these                     another    contradicted: the epoch was used twice
//!   ours      lower      any                                         contradicted: the coordinator has lost what it knew
//!   ours      ours       one that we do not know                     contradicted
//!   anything else, or not found                                      forgotten
//! ```

use std::time::Duration;

use levada_core::Timestamp;

use super::describe::{DescribedTransaction, Description, TransactionState};
use super::handle::TransactionHandle;

/// The timeout that exempts a transaction from the broker's scan (Kafka 4.1 and later).
const NEVER: Duration = Duration::from_millis(i32::MAX as u64);

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It waits for its end.
    Pending {
        /// How long until the broker drops it; `None` for never.
        left: Option<Duration>,
    },
    /// Its commit is durable.
    Committed,
    /// It is gone, or must not be committed because it was never prepared.
    Aborted,
    /// It was ended, and the coordinator does not tell how: the id was initialised since then, or has expired.
    Forgotten,
    /// The coordinator says what cannot be. Nothing follows from it.
    Contradicted,
}

/// Tells what became of a transaction.
pub fn outcome(handle: &TransactionHandle, description: &Description, now: Timestamp) -> Outcome {
    let Description::Found(found) = description else { return Outcome::Forgotten };
    if found.producer_id != handle.producer_id {
        return Outcome::Forgotten;
    }
    match i32::from(found.epoch) - i32::from(handle.epoch) {
        0 => of_own_epoch(handle, found, now),
        1 => of_next_epoch(handle, found),
        ..0 => Outcome::Contradicted,
        _ => Outcome::Forgotten,
    }
}

fn of_own_epoch(handle: &TransactionHandle, found: &DescribedTransaction, now: Timestamp) -> Outcome {
    match found.state {
        // An epoch under which nothing was begun, or an id on its way out: what there was is over.
        TransactionState::Empty | TransactionState::Dead => Outcome::Forgotten,
        TransactionState::Other => Outcome::Contradicted,
        _ if is_another(handle, found) => Outcome::Contradicted,
        TransactionState::PrepareCommit | TransactionState::CompleteCommit => Outcome::Committed,
        TransactionState::PrepareAbort | TransactionState::CompleteAbort => Outcome::Aborted,
        TransactionState::Ongoing => match (handle.start, found.start) {
            (Some(_), Some(start)) => Outcome::Pending { left: left(start, found.timeout, now) },
            // Begun, and not a record in it that a broker knows of.
            (Some(_), None) => Outcome::Contradicted,
            // Records may be missing from it.
            (None, _) => Outcome::Aborted,
        },
    }
}

/// Our own commit leaves the epoch as it is, so a commit of the next one is somebody else's.
fn of_next_epoch(handle: &TransactionHandle, found: &DescribedTransaction) -> Outcome {
    let is_aborted = matches!(found.state, TransactionState::PrepareAbort | TransactionState::CompleteAbort);
    match is_aborted && !is_another(handle, found) {
        true => Outcome::Aborted,
        false => Outcome::Forgotten,
    }
}

/// Whether the coordinator speaks of a transaction that began at another time.
fn is_another(handle: &TransactionHandle, found: &DescribedTransaction) -> bool {
    matches!((handle.start, found.start), (Some(ours), Some(theirs)) if ours != theirs)
}

/// How long until the broker drops a transaction.
pub(super) fn left(start: Timestamp, timeout: Duration, now: Timestamp) -> Option<Duration> {
    (timeout != NEVER).then(|| start.saturating_add(timeout).since(now))
}

#[cfg(test)]
mod tests {
    use super::super::scene::{PRODUCER, described, handle};
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn of(state: TransactionState, epoch: i16) -> Outcome {
        outcome(&handle(), &described(state, epoch), NOW)
    }

    /// [KSK-09] [KSK-15] every state at every epoch that matters: the handle's is 5.
    #[test]
    fn state_and_epoch_tell_what_became_of_a_transaction() {
        use Outcome::{Aborted, Committed, Contradicted, Forgotten};
        let pending = Outcome::Pending { left: Some(Duration::from_millis(59_500)) };
        let table = [
            //                                   epoch 4       5          6          7
            (TransactionState::Empty, [Contradicted, Forgotten, Forgotten, Forgotten]),
            (TransactionState::Ongoing, [Contradicted, pending, Forgotten, Forgotten]),
            (TransactionState::PrepareCommit, [Contradicted, Committed, Forgotten, Forgotten]),
            (TransactionState::CompleteCommit, [Contradicted, Committed, Forgotten, Forgotten]),
            (TransactionState::PrepareAbort, [Contradicted, Aborted, Aborted, Forgotten]),
            (TransactionState::CompleteAbort, [Contradicted, Aborted, Aborted, Forgotten]),
            (TransactionState::Dead, [Contradicted, Forgotten, Forgotten, Forgotten]),
            (TransactionState::Other, [Contradicted, Contradicted, Forgotten, Forgotten]),
        ];
        for (state, outcomes) in table {
            for (epoch, expected) in (4..).zip(outcomes) {
                assert_eq!(of(state, epoch), expected, "{state:?} at epoch {epoch}");
            }
        }
    }

    /// [KSK-15] an id that has expired, or that another producer has now.
    #[test]
    fn id_that_is_not_found_or_has_another_producer_is_forgotten() {
        assert_eq!(outcome(&handle(), &Description::NotFound, NOW), Outcome::Forgotten);
        let ours = handle();
        let rotated = TransactionHandle { producer_id: PRODUCER + 1, ..ours };
        for state in
            [TransactionState::Ongoing, TransactionState::CompleteCommit, TransactionState::CompleteAbort]
        {
            assert_eq!(outcome(&rotated, &described(state, 5), NOW), Outcome::Forgotten);
        }
    }

    /// [KSK-07] one epoch for each transaction: if that is broken, the handle is not taken for the other one.
    #[test]
    fn transaction_that_began_at_another_time_is_another() {
        let other = TransactionHandle { start: Some(Timestamp(499)), ..handle() };
        for state in
            [TransactionState::Ongoing, TransactionState::CompleteCommit, TransactionState::CompleteAbort]
        {
            assert_eq!(outcome(&other, &described(state, 5), NOW), Outcome::Contradicted, "{state:?}");
        }
        assert_eq!(outcome(&other, &described(TransactionState::CompleteAbort, 6), NOW), Outcome::Forgotten);
    }

    /// [KSK-08] only what was verified at the barrier is ever committed.
    #[test]
    fn transaction_that_was_never_prepared_counts_as_gone() {
        let open = TransactionHandle { start: None, ..handle() };
        assert_eq!(outcome(&open, &described(TransactionState::Ongoing, 5), NOW), Outcome::Aborted);
    }

    /// [KSK-20]
    #[test]
    fn transaction_without_a_timeout_has_time_for_ever() {
        let Description::Found(found) = described(TransactionState::Ongoing, 5) else { unreachable!() };
        let exempt = Description::Found(DescribedTransaction { timeout: NEVER, ..found });
        let late = Timestamp(i64::MAX);
        assert_eq!(outcome(&handle(), &exempt, late), Outcome::Pending { left: None });
    }

    #[test]
    fn transaction_past_its_timeout_that_the_broker_has_not_dropped_yet_has_no_time_left() {
        let late = outcome(&handle(), &described(TransactionState::Ongoing, 5), Timestamp(90_000));
        assert_eq!(late, Outcome::Pending { left: Some(Duration::ZERO) });
    }
}
