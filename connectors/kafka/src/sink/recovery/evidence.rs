//! What became of a transaction, by everything that is known.

use std::time::Duration;

use levada_core::Timestamp;
use levada_core::template::Fate;

use super::describe::Description;
use super::handle::TransactionHandle;
use super::marker::Marker;
use super::outcome::{Outcome, outcome};

/// What was found out about one transaction, without changing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The cluster that was asked.
    pub cluster_id: String,
    /// What the coordinator says of its id.
    pub description: Description,
    /// The marker of its id. Read *after* the description: the other way round, a transaction may be
    /// decided in between.
    pub marker: Marker,
}

/// What it is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The time now.
    pub now: Timestamp,
    /// How much of its timeout must be left to a transaction that is to be committed: more than all commits may take, and
    /// than our clock and the brokers' may differ. A wrong one costs a replay or a stop, and nothing else.
    pub margin: Duration,
}

/// Tells the fate of a transaction, for [`decide`](levada_core::template::decide): what
/// [`TwoPhaseCommitSink::inspect`](levada_core::template::TwoPhaseCommitSink::inspect) answers.
pub fn fate(handle: &TransactionHandle, evidence: &Evidence, terms: Terms) -> Fate {
    // Another cluster knows nothing of it, and its silence is no proof.
    if evidence.cluster_id != handle.cluster_id {
        return Fate::Unknown;
    }
    match outcome(handle, &evidence.description, terms.now) {
        Outcome::Pending { left: Some(left) } if left < terms.margin => Fate::Expiring,
        Outcome::Pending { .. } => Fate::Pending,
        Outcome::Committed => Fate::Committed,
        Outcome::Aborted => Fate::Aborted,
        Outcome::Forgotten => match evidence.marker.shows(handle.checkpoint) {
            Some(true) => Fate::Committed,
            Some(false) => Fate::Aborted,
            None => Fate::Unknown,
        },
        // It may still wait somewhere: a marker that is there is proof, one that is missing is none.
        Outcome::Contradicted => match evidence.marker.shows(handle.checkpoint) {
            Some(true) => Fate::Committed,
            _ => Fate::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use levada_core::CheckpointId;

    use super::super::describe::TransactionState;
    use super::super::scene::{CHECKPOINT, described, evidence, handle};
    use super::*;

    const TERMS: Terms = Terms { now: Timestamp(1_000), margin: Duration::from_secs(10) };
    const BEFORE: Marker = Marker::At(CheckpointId { sequence: CHECKPOINT.sequence - 1, ..CHECKPOINT });
    const BEHIND: Marker = Marker::At(CheckpointId { sequence: CHECKPOINT.sequence + 1, ..CHECKPOINT });
    const MARKERS: [Marker; 5] = [Marker::At(CHECKPOINT), BEHIND, BEFORE, Marker::Never, Marker::Silent];

    fn fates(description: &Description) -> [Fate; 5] {
        MARKERS.map(|marker| fate(&handle(), &evidence(description.clone(), marker), TERMS))
    }

    /// [KSK-15] the decision's part: the marker decides about what the coordinator has forgotten, and nothing else does.
    #[test]
    fn marker_decides_about_what_the_coordinator_has_forgotten() {
        let by_marker = [Fate::Committed, Fate::Committed, Fate::Aborted, Fate::Aborted, Fate::Unknown];
        assert_eq!(fates(&Description::NotFound), by_marker, "expired");
        assert_eq!(fates(&described(TransactionState::Empty, 6)), by_marker, "initialised by somebody");
        assert_eq!(fates(&described(TransactionState::Ongoing, 7)), by_marker, "in use by somebody");
    }

    /// [KSK-15] where the coordinator tells, the marker is not asked: a transaction that waits has none yet.
    #[test]
    fn marker_has_no_say_where_the_coordinator_tells() {
        assert_eq!(fates(&described(TransactionState::Ongoing, 5)), [Fate::Pending; 5]);
        assert_eq!(fates(&described(TransactionState::CompleteCommit, 5)), [Fate::Committed; 5]);
        assert_eq!(fates(&described(TransactionState::CompleteAbort, 6)), [Fate::Aborted; 5]);
    }

    /// [KSK-15] what cannot be is never taken for an abort.
    #[test]
    fn missing_marker_is_no_proof_where_the_coordinator_contradicts() {
        let proved = [Fate::Committed, Fate::Committed, Fate::Unknown, Fate::Unknown, Fate::Unknown];
        assert_eq!(fates(&described(TransactionState::Ongoing, 4)), proved);
        assert_eq!(fates(&described(TransactionState::Other, 5)), proved);
    }

    /// [KSK-15] a later attempt may have rolled the transaction back, and published others since then.
    #[test]
    fn marker_of_a_later_attempt_is_no_proof() {
        let later = Marker::At(CheckpointId::new(CHECKPOINT.attempt + 1, 1));
        let earlier = Marker::At(CheckpointId::new(CHECKPOINT.attempt - 1, 99));
        let of = |marker| fate(&handle(), &evidence(Description::NotFound, marker), TERMS);
        assert_eq!([of(later), of(earlier)], [Fate::Unknown, Fate::Aborted]);
    }

    /// [KSK-08] the handle names its cluster: another one's answers decide nothing.
    #[test]
    fn answers_of_another_cluster_decide_nothing() {
        for description in [Description::NotFound, described(TransactionState::CompleteCommit, 5)] {
            let here = evidence(description, Marker::Never);
            let elsewhere = Evidence { cluster_id: "another".to_owned(), ..here };
            assert_eq!(fate(&handle(), &elsewhere, TERMS), Fate::Unknown);
        }
    }

    /// [KSK-13] the decision's part: too near its timeout.
    #[test]
    fn transaction_too_near_its_timeout_is_expiring() {
        let ongoing = evidence(described(TransactionState::Ongoing, 5), Marker::Silent);
        // It began at 500 ms and has 60 s.
        let at = |now| fate(&handle(), &ongoing, Terms { now: Timestamp(now), ..TERMS });
        assert_eq!(at(50_500), Fate::Pending, "ten seconds left");
        assert_eq!(at(50_501), Fate::Expiring);
        assert_eq!(at(500_000), Fate::Expiring);
    }
}
