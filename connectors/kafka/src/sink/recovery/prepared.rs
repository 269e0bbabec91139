//! Whether a transaction may be handed to a checkpoint.

use std::time::Duration;

use levada_core::Timestamp;
use thiserror::Error;

use super::describe::{Description, Partitions, TransactionState};
use super::evidence::Terms;
use super::handle::TransactionHandle;
use super::outcome::left;

/// A transaction cannot be pre-committed: its records have to be written again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotPrepared {
    /// The coordinator does not know its id.
    #[error("the coordinator does not know the transactional id")]
    NotFound,
    /// Somebody has initialised the id.
    #[error(
        "the transactional id now has producer {producer_id}, epoch {epoch}: somebody else has initialised it"
    )]
    Fenced {
        /// The producer that it has.
        producer_id: i64,
        /// Its epoch.
        epoch: i16,
    },
    /// It was ended, or never begun.
    #[error("the transaction is {0:?}, not ongoing")]
    NotOngoing(TransactionState),
    /// The coordinator will not write markers to these, so their records would never be visible.
    #[error("the coordinator does not have these partitions in the transaction: {0:?}")]
    Missing(Partitions),
    /// The broker would drop it before its checkpoint can be complete.
    #[error(
        "the transaction has {left:?} left, less than {margin:?}; its timeout is too short for these checkpoints"
    )]
    TooLate {
        /// What is left.
        left: Duration,
        /// What must be.
        margin: Duration,
    },
}

/// Checks that a transaction whose records were all acknowledged waits at its coordinator as it should. Returns when it
/// began, by the broker's clock.
///
/// # Errors
/// It does not, or not for long enough.
pub fn check_prepared(
    handle: &TransactionHandle,
    description: &Description,
    terms: Terms,
) -> Result<Timestamp, NotPrepared> {
    let Description::Found(found) = description else { return Err(NotPrepared::NotFound) };
    let (producer_id, epoch) = (found.producer_id, found.epoch);
    if (producer_id, epoch) != (handle.producer_id, handle.epoch) {
        return Err(NotPrepared::Fenced { producer_id, epoch });
    }
    let (TransactionState::Ongoing, Some(start)) = (found.state, found.start) else {
        return Err(NotPrepared::NotOngoing(found.state));
    };
    let missing = missing(&handle.partitions, &found.partitions);
    if !missing.is_empty() {
        return Err(NotPrepared::Missing(missing));
    }
    match left(start, found.timeout, terms.now) {
        Some(left) if left < terms.margin => Err(NotPrepared::TooLate { left, margin: terms.margin }),
        _ => Ok(start),
    }
}

fn missing(wanted: &Partitions, found: &Partitions) -> Partitions {
    let mut missing = wanted.clone();
    for (topic, partitions) in &mut missing {
        partitions.retain(|partition| !found.get(topic).is_some_and(|found| found.contains(partition)));
    }
    missing.retain(|_, partitions| !partitions.is_empty());
    missing
}

#[cfg(test)]
mod tests {
    use super::super::scene::{PRODUCER, described, handle};
    use super::*;

    const TERMS: Terms = Terms { now: Timestamp(1_000), margin: Duration::from_secs(10) };

    fn checked(description: &Description) -> Result<Timestamp, NotPrepared> {
        check_prepared(&handle(), description, TERMS)
    }

    /// [KSK-08] the decision's part: each condition of the pre-commit.
    #[test]
    fn transaction_is_prepared_only_if_it_waits_as_it_should() {
        assert_eq!(checked(&described(TransactionState::Ongoing, 5)), Ok(Timestamp(500)));
        assert_eq!(checked(&Description::NotFound), Err(NotPrepared::NotFound));
        let fenced = NotPrepared::Fenced { producer_id: PRODUCER, epoch: 6 };
        assert_eq!(checked(&described(TransactionState::Ongoing, 6)), Err(fenced));
        for state in
            [TransactionState::Empty, TransactionState::CompleteAbort, TransactionState::CompleteCommit]
        {
            assert_eq!(checked(&described(state, 5)), Err(NotPrepared::NotOngoing(state)));
        }
    }

    /// [KSK-08] a partition that the coordinator does not have would stay invisible.
    #[test]
    fn partition_that_the_coordinator_does_not_have_is_noticed() {
        let mut wider = handle();
        wider.partitions.insert("other".to_owned(), [3].into());
        wider.partitions.entry("out".to_owned()).or_default().insert(2);
        let missing = [("other".to_owned(), [3].into()), ("out".to_owned(), [2].into())].into();
        let checked = check_prepared(&wider, &described(TransactionState::Ongoing, 5), TERMS);
        assert_eq!(checked, Err(NotPrepared::Missing(missing)));
    }

    /// [KSK-08] enough time left.
    #[test]
    fn transaction_with_too_little_time_left_is_refused() {
        let late = Terms { now: Timestamp(50_501), ..TERMS };
        let too_late = NotPrepared::TooLate { left: Duration::from_millis(9_999), margin: TERMS.margin };
        assert_eq!(check_prepared(&handle(), &described(TransactionState::Ongoing, 5), late), Err(too_late));
    }
}
