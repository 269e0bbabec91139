//! Whether readers of committed data see a transaction whose commit is decided.
//!
//! A coordinator says that a commit is complete when it has dealt with the marker of every partition. Kafka 4.3.0 also counts
//! those as dealt with that it could not send anywhere, because the partition had no leader at that moment: such a transaction
//! stays open there for ever. So the leaders are asked, *behind* the coordinator:
//!
//! ```text
//!   coordinator                        leader                                          partition
//!   committing                                                                         not yet
//!   committed, or has forgotten it     no open transaction of its producer in its epoch    seen
//!                                      one                                             left out
//!                                      does not tell                                   not yet
//!                                      the cluster has no such partition any more      seen by nobody
//! ```

use std::cmp::Ordering;
use std::collections::BTreeMap;

use levada_core::Timestamp;

use super::describe::{Description, Partitions, TransactionState};
use super::handle::TransactionHandle;

/// A transaction whose commit is decided for good, by the only thing that a marker of it needs: its producer in the epoch that
/// it has for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommittedTransaction {
    pub(crate) transactional_id: String,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) start: Option<Timestamp>,
    /// Those that are to be looked into.
    pub(crate) partitions: Partitions,
    /// What it is called in messages.
    pub(crate) told: String,
}

impl CommittedTransaction {
    pub(crate) fn of(handle: &TransactionHandle) -> Self {
        Self {
            transactional_id: handle.transactional_id.clone(),
            producer_id: handle.producer_id,
            epoch: handle.epoch,
            start: handle.start,
            partitions: handle.partitions.clone(),
            told: handle.to_string(),
        }
    }
}

/// A topic and a partition of it.
pub(crate) type Place = (String, i32);

/// A producer with an open transaction in a partition, as the leader tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenProducer {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i32,
    pub(crate) open_from: u64,
    pub(crate) coordinator_epoch: Option<i32>,
}

/// What is said of a partition, asked behind the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// Its leader names the producers with an open transaction.
    Open(Vec<OpenProducer>),
    /// It is deleted, and what was in it.
    Deleted,
    /// Nobody tells now.
    Silent,
}

/// A transaction that is open in a partition though it is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) place: Place,
    /// Its first record there. Readers of committed data stay in front of it.
    pub(crate) open_from: u64,
    /// The coordinator in whose name its marker is to be written.
    pub(crate) coordinator_epoch: i32,
}

/// Whether readers see a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing follows from what was said: ask again.
    NotYet,
    /// In each partition.
    Everywhere,
    /// Not in these, and nobody will write their markers.
    LeftOut(Vec<LeftOut>),
}

/// Tells whether readers see a transaction. `description` is what its coordinator said *before* the leaders were asked for what
/// is in `told`; the other way round, a marker that is on its way would be taken for one that was left out.
pub(crate) fn seen(
    transaction: &CommittedTransaction,
    description: &Description,
    told: &BTreeMap<Place, Told>,
) -> Seen {
    if completion(transaction, description) != Completion::Complete {
        return Seen::NotYet;
    }
    let left_out: Vec<LeftOut> =
        told.iter().filter_map(|(place, told)| left_out(transaction, place, told)).collect();
    let is_silent = told.values().any(|told| *told == Told::Silent);
    match (left_out.is_empty(), is_silent) {
        (false, _) => Seen::LeftOut(left_out),
        (true, true) => Seen::NotYet,
        (true, false) => Seen::Everywhere,
    }
}

/// How far the coordinator is with a transaction that it has to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// It has dealt with all markers.
    Complete,
    /// Not yet.
    NotYet,
    /// It says what cannot be of a transaction whose commit is decided. Nothing follows, also from waiting.
    Contradicted,
}

/// Tells how far the coordinator is.
pub(crate) fn completion(transaction: &CommittedTransaction, description: &Description) -> Completion {
    use Completion::{Complete, Contradicted, NotYet};
    // Ids expire, and go to another producer, only when nothing of them is to be done.
    let Description::Found(found) = description else { return Complete };
    if found.producer_id != transaction.producer_id {
        return Complete;
    }
    let is_another = matches!((transaction.start, found.start), (Some(ours), Some(theirs)) if ours != theirs);
    match (found.epoch.cmp(&transaction.epoch), found.state) {
        (Ordering::Less, _) => Contradicted,
        (Ordering::Equal, _) if is_another => Contradicted,
        (Ordering::Equal, TransactionState::CompleteCommit | TransactionState::Dead) => Complete,
        (Ordering::Equal, TransactionState::Ongoing | TransactionState::PrepareCommit) => NotYet,
        (Ordering::Equal, _) => Contradicted,
        // A timeout raises the epoch in the middle of a transaction.
        (Ordering::Greater, TransactionState::PrepareAbort | TransactionState::CompleteAbort)
            if !is_another =>
        {
            Contradicted
        }
        // An id is initialised when its last transaction is complete.
        (Ordering::Greater, _) => Complete,
    }
}

/// A later epoch is another transaction, and so is an earlier one.
fn left_out(transaction: &CommittedTransaction, place: &Place, told: &Told) -> Option<LeftOut> {
    let Told::Open(open) = told else { return None };
    let is_ours = |one: &&OpenProducer| {
        one.producer_id == transaction.producer_id && one.epoch == i32::from(transaction.epoch)
    };
    let OpenProducer { open_from, coordinator_epoch, .. } = *open.iter().find(is_ours)?;
    Some(LeftOut {
        place: place.clone(),
        open_from,
        coordinator_epoch: coordinator_epoch.unwrap_or(0).max(0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::scene::{PRODUCER, described, handle};
    use super::*;

    fn transaction() -> CommittedTransaction {
        CommittedTransaction::of(&handle())
    }

    fn place(partition: i32) -> Place {
        ("out".to_owned(), partition)
    }

    /// Open from 40 on.
    fn open(producer_id: i64, epoch: i32) -> Told {
        Told::Open(vec![OpenProducer { producer_id, epoch, open_from: 40, coordinator_epoch: Some(3) }])
    }

    fn nothing() -> Told {
        Told::Open(vec![])
    }

    fn committed() -> Description {
        described(TransactionState::CompleteCommit, 5)
    }

    fn judged(description: &Description, told: [Told; 2]) -> Seen {
        let told = told.into_iter().enumerate().map(|(number, told)| (place(number as i32), told)).collect();
        seen(&transaction(), description, &told)
    }

    fn left_out_in(partition: i32) -> LeftOut {
        LeftOut { place: place(partition), open_from: 40, coordinator_epoch: 3 }
    }

    /// [KSK-09] behind the coordinator's word that it is complete, what is open in its epoch was left out.
    #[test]
    fn what_is_open_in_its_epoch_behind_a_complete_commit_was_left_out() {
        let left_out =
            |partitions: &[i32]| Seen::LeftOut(partitions.iter().copied().map(left_out_in).collect());
        let ours = || open(PRODUCER, 5);
        let table = [
            ([nothing(), nothing()], Seen::Everywhere),
            ([ours(), nothing()], left_out(&[0])),
            ([ours(), ours()], left_out(&[0, 1])),
            ([nothing(), Told::Silent], Seen::NotYet),
            ([ours(), Told::Silent], left_out(&[0])),
            ([nothing(), Told::Deleted], Seen::Everywhere),
            ([Told::Deleted, Told::Silent], Seen::NotYet),
            // Of others, and of other transactions of its id.
            ([open(PRODUCER + 1, 5), nothing()], Seen::Everywhere),
            ([open(PRODUCER, 4), open(PRODUCER, 6)], Seen::Everywhere),
        ];
        for (told, expected) in table {
            assert_eq!(judged(&committed(), told.clone()), expected, "{told:?}");
        }
    }

    /// [KSK-09] a marker that may be on its way is not taken for one that was left out.
    #[test]
    fn nothing_was_left_out_before_the_coordinator_is_through() {
        use Completion::{Complete, Contradicted as No, NotYet};
        use TransactionState::{
            CompleteAbort, CompleteCommit, Dead, Empty, Ongoing, Other, PrepareAbort, PrepareCommit,
        };
        let table = [
            //                epoch 4, 5, 6, 7
            (Empty, [No, No, Complete, Complete]),
            (Ongoing, [No, NotYet, Complete, Complete]),
            (PrepareCommit, [No, NotYet, Complete, Complete]),
            (CompleteCommit, [No, Complete, Complete, Complete]),
            (PrepareAbort, [No, No, No, No]),
            (CompleteAbort, [No, No, No, No]),
            (Dead, [No, Complete, Complete, Complete]),
            (Other, [No, No, Complete, Complete]),
        ];
        for (state, expected) in table {
            let told = [4, 5, 6, 7].map(|epoch| {
                let description = described(state, epoch);
                let seen = judged(&description, [open(PRODUCER, 5), nothing()]);
                let completion = completion(&transaction(), &description);
                assert_eq!(
                    seen == Seen::NotYet,
                    completion != Complete,
                    "{state:?} in epoch {epoch}: {seen:?}"
                );
                assert_ne!(seen, Seen::Everywhere);
                completion
            });
            assert_eq!(told, expected, "{state:?}");
        }
        let open = || [open(PRODUCER, 5), nothing()];
        assert_eq!(judged(&Description::NotFound, open()), Seen::LeftOut(vec![left_out_in(0)]));
    }

    /// Another transaction in its epoch, by when it began, is a contradiction: nothing follows.
    #[test]
    fn transaction_that_began_at_another_time_tells_nothing_of_this_one() {
        let ours = CommittedTransaction { start: Some(Timestamp(501)), ..transaction() };
        let told = [(place(0), open(PRODUCER, 5))].into();
        assert_eq!(seen(&ours, &committed(), &told), Seen::NotYet);
        assert_eq!(completion(&ours, &committed()), Completion::Contradicted);
    }

    /// A leader that has no marker of the producer takes any coordinator's.
    #[test]
    fn first_marker_of_a_producer_is_written_in_the_name_of_coordinator_zero() {
        let open = OpenProducer { producer_id: PRODUCER, epoch: 5, open_from: 0, coordinator_epoch: None };
        let told = [(place(0), Told::Open(vec![open]))].into();
        let expected = LeftOut { place: place(0), open_from: 0, coordinator_epoch: 0 };
        assert_eq!(seen(&transaction(), &committed(), &told), Seen::LeftOut(vec![expected]));
    }
}
