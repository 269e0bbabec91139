//! [TPL-18] Each flaw is found, in the scenario that is about it, with the finding that names it.

use levada_conformance::{Finding, two_phase};

use crate::memory::{Flaw, Memory};

/// Lets a flawed sink fail a scenario.
macro_rules! fails {
    ($($test:ident: $flaw:ident, $scenario:ident, $finding:pat,)*) => {$(
        /// [TPL-18]
        #[tokio::test]
        async fn $test() {
            let failure = two_phase::$scenario(&Memory::with(Flaw::$flaw)).await.unwrap_err();
            assert_eq!(failure.scenario(), stringify!($scenario));
            assert!(matches!(failure.finding(), $finding), "{failure}");
        }
    )*};
}

fails! {
    commit_at_the_pre_commit_is_found:
        CommitsAtPreCommit, nothing_is_visible_before_its_checkpoint_is_complete, Finding::Early { .. },
    second_commit_that_publishes_again_is_found:
        CommitsAgain, commit_can_be_repeated_by_anyone, Finding::Doubled { .. },
    second_commit_that_publishes_again_is_found_by_a_crash:
        CommitsAgain, crash_at_every_call_loses_and_doubles_nothing, Finding::Doubled { .. },
    second_commit_that_fails_is_found:
        RefusesASecondCommit, commit_can_be_repeated_by_anyone, Finding::Refused { .. },
    second_commit_that_fails_is_found_by_a_crash_in_a_recovery:
        RefusesASecondCommit, crash_at_every_call_of_a_recovery_loses_and_doubles_nothing, Finding::Refused { .. },
    commit_of_nothing_is_found_when_dropped:
        CommitsAnythingUnknown, dropped_transaction_is_never_committed_silently, Finding::Accepted { .. },
    commit_of_nothing_is_found_when_lost:
        CommitsAnythingUnknown, lost_transaction_is_never_committed_silently, Finding::Accepted { .. },
    loss_that_would_be_tried_for_ever_is_found:
        RetriesALoss, lost_transaction_is_never_committed_silently, Finding::Answer { .. },
    abort_that_refuses_the_unknown_is_found:
        RefusesToAbortTheUnknown, abort_can_be_repeated_by_anyone, Finding::Refused { .. },
    abort_that_drops_nothing_is_found:
        AbortsOnlyOpenOnes, abort_can_be_repeated_by_anyone, Finding::LeftOver { .. },
    abort_that_drops_nothing_is_found_at_a_commit:
        AbortsOnlyOpenOnes, dropped_transaction_is_never_committed_silently, Finding::Early { .. },
    handle_without_a_field_is_found:
        HandleWithoutSubtask, transactions_survive_a_change_of_parallelism,
        Finding::Refused { .. } | Finding::Lost { .. } | Finding::Answer { .. },
    buffer_in_memory_is_found_by_another_process:
        BuffersUntilTheCommit, stored_handle_is_enough_to_commit, Finding::Lost { .. },
    buffer_in_memory_is_found_by_a_crash:
        BuffersUntilTheCommit, crash_at_every_call_loses_and_doubles_nothing, Finding::Lost { .. },
    pre_commit_that_only_its_process_knows_is_found:
        KeepsThePreCommitToItself, stored_handle_is_enough_to_commit, Finding::Refused { .. },
    commit_out_of_order_is_found:
        CommitsOutOfOrder, lost_notification_is_made_good_by_the_next, Finding::OutOfOrder { .. },
    lost_record_is_found:
        LosesTheLastOfABatch, each_record_is_visible_once_when_its_checkpoint_is_complete, Finding::Lost { .. },
    lost_record_is_found_at_the_end:
        LosesTheLastOfABatch, bounded_end_makes_everything_visible, Finding::Lost { .. },
    lost_record_is_found_behind_an_aborted_checkpoint:
        LosesTheLastOfABatch, aborted_checkpoint_drops_nothing, Finding::Lost { .. },
    lost_record_is_found_behind_late_notifications:
        LosesTheLastOfABatch, late_and_repeated_notifications_change_nothing, Finding::Lost { .. },
    fence_that_ends_what_is_kept_is_found:
        FencesWhatIsKept, fence_spares_what_is_kept_and_ends_the_rest, Finding::Refused { .. },
    fence_that_ends_what_is_kept_is_found_by_a_restart:
        FencesWhatIsKept, close_keeps_what_is_pre_committed, Finding::Refused { .. },
    fence_that_ends_nothing_is_found:
        FencesNothing, fence_spares_what_is_kept_and_ends_the_rest, Finding::Early { .. },
    fence_that_ends_nothing_is_found_by_its_left_overs:
        FencesNothing, crash_at_every_call_loses_and_doubles_nothing, Finding::LeftOver { .. },
    fence_that_forgets_former_subtasks_is_found:
        FencesOnlyItsOwnSubtask, fence_spares_what_is_kept_and_ends_the_rest, Finding::Early { .. },
    fence_that_ends_a_neighbour_is_found:
        FencesByPrefix, fence_leaves_other_jobs_alone, Finding::Refused { .. },
    fence_that_ends_later_attempts_is_found:
        FencesLaterAttempts, woken_fence_spares_what_later_attempts_have_begun, Finding::Refused { .. },
    fence_that_compares_names_as_texts_is_found:
        FencesByTheWordOfTheName, woken_fence_spares_what_later_attempts_have_begun, Finding::Refused { .. },
    fence_that_knows_attempts_alone_is_found:
        FencesOnlyEarlierAttempts, fence_of_a_restart_ends_what_its_own_attempt_has_left, Finding::LeftOver { .. },
    fence_that_lets_zombies_commit_is_found:
        LetsZombiesCommit, fence_spares_what_is_kept_and_ends_the_rest, Finding::Early { .. },
    close_that_aborts_what_waits_is_found:
        CloseAbortsWhatWaits, close_keeps_what_is_pre_committed, Finding::Refused { .. } | Finding::Answer { .. },
    wrong_fate_is_found:
        TakesCommittedForAborted, inspection_tells_what_became_of_each_transaction, Finding::Answer { .. },
}

/// [TPL-18] What is replayed from the seed of a failure fails again in the same way.
#[tokio::test]
async fn random_histories_find_flaws_and_their_seed_replays_them() {
    for flaw in [Flaw::CommitsAgain, Flaw::BuffersUntilTheCommit, Flaw::FencesNothing] {
        let failure =
            two_phase::random_histories_agree_with_the_model(&Memory::with(flaw)).await.unwrap_err();
        let seed = failure.seed().unwrap();
        let again = Replay(Memory::with(flaw), seed);
        let again = two_phase::random_histories_agree_with_the_model(&again).await.unwrap_err();
        assert_eq!(again.seed(), Some(seed));
        assert_eq!(
            again.finding().to_string().split('{').next(),
            failure.finding().to_string().split('{').next()
        );
    }
}

/// [TPL-18] A report names the scenario, the finding, and the calls before it.
#[tokio::test]
async fn failure_tells_what_has_happened() {
    let target = Memory::with(Flaw::CommitsAtPreCommit);
    let failure = two_phase::nothing_is_visible_before_its_checkpoint_is_complete(&target).await.unwrap_err();
    let report = failure.to_string();
    for part in [
        "nothing_is_visible_before",
        "records [1, 2, 3, 4, 5] are visible too early",
        "barrier 1-1",
        "pre_commit",
    ] {
        assert!(report.contains(part), "{part} in {report}");
    }
}

/// The same target, with one history.
struct Replay(Memory, u64);

impl levada_conformance::TwoPhaseTarget for Replay {
    type Item = u64;
    type Sink = crate::memory::MemorySink;

    fn sinks(&self, count: u32) -> Vec<Self::Sink> {
        self.0.sinks(count)
    }

    fn item(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self) -> Result<Vec<u64>, levada_core::BoxError> {
        self.0.visible().await
    }

    async fn left_over(&self) -> Result<Option<Vec<String>>, levada_core::BoxError> {
        self.0.left_over().await
    }

    fn histories(&self) -> levada_conformance::Histories {
        levada_conformance::Histories::replay(self.1)
    }
}
