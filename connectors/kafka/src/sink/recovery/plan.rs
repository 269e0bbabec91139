//! All or none, for a sink alone. In a job the engine decides the same over all of its sinks.

use levada_core::CheckpointId;
use levada_core::template::{Decision, Fate, decide};

use super::evidence::{Evidence, Terms, fate};
use super::handle::TransactionHandle;

/// What is on record of the checkpoint whose transactions are to be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It is complete, and nothing more.
    Complete,
    /// Everything in it is visible.
    Resolved,
    /// It was decided to drop it; whoever decided may have died in the middle.
    RolledBack,
}

/// What to do with the transactions of a checkpoint. The numbers are places in the list of handles.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// Nothing: it is resolved. Nobody is asked, for coordinators forget.
    Nothing,
    /// Commit every one, then record that it is resolved.
    CommitAll,
    /// Record that it is rolled back, abort every one, then go on from the checkpoint before.
    RollBackAll,
    /// Stop: something is visible, and something gone.
    Torn {
        /// Which are visible.
        visible: Vec<usize>,
        /// Which are gone.
        gone: Vec<usize>,
    },
    /// Stop: nobody tells what became of these.
    Unknown {
        /// Which.
        unknown: Vec<usize>,
    },
}

/// What to do with a torn checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TornPolicy {
    /// Stop.
    #[default]
    Fail,
    /// Go back: what is visible will be published once more.
    Duplicate,
    /// Go on: what is gone is lost.
    Lose,
}

/// Decides over all transactions of a checkpoint together. `evidence` has one element for each handle; one that is missing
/// leaves its transaction unknown.
pub fn plan(
    handles: &[TransactionHandle],
    evidence: &[Evidence],
    standing: Standing,
    previous: Option<CheckpointId>,
    terms: Terms,
) -> Plan {
    let found = |(place, handle): (usize, &TransactionHandle)| {
        let fate = evidence.get(place).map_or(Fate::Unknown, |evidence| fate(handle, evidence, terms));
        (handle.checkpoint, fate)
    };
    let fates: Vec<_> = handles.iter().enumerate().map(found).collect();
    plan_by_fates(&fates, standing, previous)
}

/// The same where the fates are known: one for each transaction, with the checkpoint that covers it.
pub fn plan_by_fates(
    fates: &[(CheckpointId, Fate)],
    standing: Standing,
    previous: Option<CheckpointId>,
) -> Plan {
    let places = |wanted: Fate| -> Vec<usize> {
        let are = fates.iter().enumerate().filter(|(_, (_, fate))| *fate == wanted);
        are.map(|(place, _)| place).collect()
    };
    let torn = || Plan::Torn { visible: places(Fate::Committed), gone: places(Fate::Aborted) };
    match standing {
        Standing::Resolved => return Plan::Nothing,
        Standing::RolledBack if !places(Fate::Committed).is_empty() => return torn(),
        Standing::RolledBack => return Plan::RollBackAll,
        Standing::Complete => {}
    }
    match decide(fates, previous) {
        Decision::CommitAll => Plan::CommitAll,
        Decision::RollBack { .. } => Plan::RollBackAll,
        Decision::Torn { .. } => torn(),
        _ => Plan::Unknown { unknown: places(Fate::Unknown) },
    }
}

impl Plan {
    /// Goes on where a policy says how. It never does where nobody knows what became of a transaction.
    #[must_use]
    pub fn under(self, policy: TornPolicy) -> Self {
        match (self, policy) {
            (Plan::Torn { .. }, TornPolicy::Duplicate) => Plan::RollBackAll,
            (Plan::Torn { .. }, TornPolicy::Lose) => Plan::CommitAll,
            (plan, _) => plan,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levada_core::Timestamp;

    use super::super::describe::{Description, TransactionState};
    use super::super::marker::Marker;
    use super::super::scene::{described, evidence, handle};
    use super::*;

    const TERMS: Terms = Terms { now: Timestamp(1_000), margin: Duration::from_secs(10) };

    fn found(state: TransactionState, epoch: i16) -> Evidence {
        evidence(described(state, epoch), Marker::Silent)
    }

    fn pending() -> Evidence {
        found(TransactionState::Ongoing, 5)
    }

    fn committed() -> Evidence {
        found(TransactionState::CompleteCommit, 5)
    }

    fn timed_out() -> Evidence {
        found(TransactionState::CompleteAbort, 6)
    }

    fn forgotten(marker: Marker) -> Evidence {
        evidence(Description::NotFound, marker)
    }

    fn planned(found: &[Evidence], standing: Standing) -> Plan {
        plan(&vec![handle(); found.len()], found, standing, None, TERMS)
    }

    fn complete(found: &[Evidence]) -> Plan {
        planned(found, Standing::Complete)
    }

    /// [KSK-11] [KSK-12] the decision's part: what waits is committed, also where a part of it was before the crash.
    #[test]
    fn waiting_transactions_are_committed_also_when_some_are_visible() {
        assert_eq!(complete(&[pending(), pending()]), Plan::CommitAll);
        assert_eq!(complete(&[committed(), pending()]), Plan::CommitAll);
        assert_eq!(complete(&[committed(), committed()]), Plan::CommitAll);
        let sent = found(TransactionState::PrepareCommit, 5);
        assert_eq!(complete(&[sent, pending()]), Plan::CommitAll, "EndTxn was received, its answer lost");
    }

    /// [KSK-10] [KSK-12] the decision's part.
    #[test]
    fn resolved_checkpoint_is_not_asked_about() {
        assert_eq!(planned(&[forgotten(Marker::Silent)], Standing::Resolved), Plan::Nothing);
    }

    /// [KSK-13] the decision's part: one is gone, none is visible.
    #[test]
    fn one_gone_and_none_visible_is_rolled_back() {
        assert_eq!(complete(&[pending(), timed_out()]), Plan::RollBackAll);
        assert_eq!(complete(&[timed_out(), timed_out()]), Plan::RollBackAll);
    }

    /// [KSK-13] the decision's part: too near its timeout counts as gone while going back is possible.
    #[test]
    fn too_near_its_timeout_is_rolled_back_unless_some_are_visible() {
        let late = Terms { now: Timestamp(55_000), ..TERMS };
        let both = vec![handle(); 2];
        assert_eq!(plan(&both, &[pending(), pending()], Standing::Complete, None, late), Plan::RollBackAll);
        assert_eq!(plan(&both, &[committed(), pending()], Standing::Complete, None, late), Plan::CommitAll);
    }

    /// [KSK-13] a second crash in the middle of a roll-back: it is gone on with, whatever still waits.
    #[test]
    fn roll_back_that_was_begun_is_gone_on_with() {
        let rolled_back = |found: &[Evidence]| planned(found, Standing::RolledBack);
        assert_eq!(rolled_back(&[pending(), pending()]), Plan::RollBackAll);
        assert_eq!(rolled_back(&[pending(), forgotten(Marker::Silent)]), Plan::RollBackAll);
        let torn = Plan::Torn { visible: vec![1], gone: vec![0] };
        assert_eq!(rolled_back(&[timed_out(), committed()]), torn, "somebody woke up and committed");
    }

    /// [KSK-14] the decision's part: torn is a stop that says which, unless a policy says how to go on.
    #[test]
    fn visible_and_gone_is_torn() {
        let torn = complete(&[committed(), timed_out(), pending()]);
        assert_eq!(torn, Plan::Torn { visible: vec![0], gone: vec![1] });
        assert_eq!(torn.clone().under(TornPolicy::Fail), torn);
        assert_eq!(torn.clone().under(TornPolicy::Duplicate), Plan::RollBackAll);
        assert_eq!(torn.under(TornPolicy::Lose), Plan::CommitAll);
    }

    /// [KSK-15] the decision's part: what nobody tells is a stop, by whatever policy; the marker makes it a decision.
    #[test]
    fn what_nobody_tells_is_a_stop_and_the_marker_makes_it_a_decision() {
        let unknown = Plan::Unknown { unknown: vec![1] };
        assert_eq!(complete(&[pending(), forgotten(Marker::Silent)]), unknown);
        for policy in [TornPolicy::Fail, TornPolicy::Duplicate, TornPolicy::Lose] {
            assert_eq!(unknown.clone().under(policy), unknown);
        }
        assert_eq!(complete(&[pending(), forgotten(Marker::Never)]), Plan::RollBackAll);
        let visible = Marker::At(handle().checkpoint);
        assert_eq!(complete(&[pending(), forgotten(visible)]), Plan::CommitAll);
        assert_eq!(
            plan(&[handle()], &[], Standing::Complete, None, TERMS),
            Plan::Unknown { unknown: vec![0] }
        );
    }

    /// [KSK-18] the decision's part: what the checkpoint before covers, too, rides along and cannot be rolled back.
    #[test]
    fn what_rides_along_from_the_checkpoint_before_is_not_rolled_back() {
        let earlier = TransactionHandle { checkpoint: CheckpointId::new(3, 16), ..handle() };
        let handles = [earlier, handle()];
        let planned = |found: &[Evidence]| {
            plan(&handles, found, Standing::Complete, Some(handles[0].checkpoint), TERMS)
        };
        assert_eq!(planned(&[pending(), pending()]), Plan::CommitAll);
        assert_eq!(planned(&[committed(), timed_out()]), Plan::RollBackAll);
        assert_eq!(planned(&[timed_out(), pending()]), Plan::Torn { visible: vec![], gone: vec![0] });
    }
}
