//! [TPL-18] Each flaw is found, in the scenario that is about it, with the finding that names it.

use levada_conformance::{Finding, atomic};

use crate::memory::{Flaw, Memory};

/// Lets a flawed sink fail a scenario.
macro_rules! fails {
    ($($test:ident: $flaw:ident, $scenario:ident, $finding:pat,)*) => {$(
        /// [TPL-18]
        #[tokio::test]
        async fn $test() {
            let failure = atomic::$scenario(&Memory::with(Flaw::$flaw)).await.unwrap_err();
            assert_eq!(failure.scenario(), stringify!($scenario));
            assert!(matches!(failure.finding(), $finding), "{failure}");
        }
    )*};
}

fails! {
    claim_without_a_fence_is_found:
        ClaimsWithoutAFence, claim_fences_the_earlier_owner, Finding::Accepted { .. },
    claim_without_a_fence_is_found_by_other_subtasks:
        ClaimsWithoutAFence, splits_move_with_a_change_of_parallelism, Finding::Accepted { .. },
    fence_of_the_first_split_alone_is_found:
        ChecksTheFirstSplitOnly, lost_split_takes_the_whole_interval_with_it, Finding::Accepted { .. },
    part_of_an_interval_is_found:
        CommitsWhatItStillOwns, lost_split_takes_the_whole_interval_with_it, Finding::Early { .. },
    rows_before_the_fence_are_found:
        RowsBeforeTheFence, claim_fences_the_earlier_owner, Finding::Early { .. },
    split_that_is_taken_back_is_found:
        TakesBackWhatItLost, claim_of_a_split_that_was_lost_is_refused, Finding::Accepted { .. },
    positions_without_rows_are_found:
        PositionsWithoutRows, rows_and_positions_are_committed_together, Finding::Lost { .. },
    positions_without_rows_are_found_by_a_crash:
        PositionsWithoutRows, crash_at_every_call_loses_and_doubles_nothing, Finding::Lost { .. },
    rows_without_positions_are_found:
        RowsWithoutPositions, rows_and_positions_are_committed_together, Finding::WrongPosition { .. },
    rows_without_positions_are_found_by_a_released_split:
        RowsWithoutPositions, released_split_goes_on_where_it_was, Finding::WrongPosition { .. },
    commit_in_two_steps_is_found:
        RowsInAStepOfTheirOwn, commit_that_is_cut_off_is_all_or_nothing, Finding::Early { .. },
    write_that_is_visible_at_once_is_found:
        WritesAtOnce, nothing_is_visible_before_a_commit, Finding::Early { .. } | Finding::Answer { .. },
    write_that_is_visible_at_once_is_found_by_subtasks:
        WritesAtOnce, subtasks_commit_their_own_splits, Finding::Early { .. },
    discard_that_keeps_rows_is_found:
        DiscardKeepsRows, discard_drops_the_whole_interval, Finding::Answer { .. },
    discard_that_keeps_rows_is_found_behind_a_fence:
        DiscardKeepsRows, sink_stays_usable_when_it_was_fenced, Finding::Doubled { .. } | Finding::Early { .. },
    discard_of_a_part_is_found:
        DiscardsOnePartOnly, discard_drops_the_whole_interval, Finding::Answer { .. },
    start_of_claimed_splits_alone_is_found:
        StoresTheStartsOfItsSplitsOnly, first_claim_stores_the_start_of_every_split, Finding::WrongPosition { .. },
    sink_that_stays_fenced_is_found:
        StaysFenced, sink_stays_usable_when_it_was_fenced, Finding::Refused { .. },
    release_that_does_nothing_is_found:
        ReleasesNothing, released_split_goes_on_where_it_was, Finding::Refused { .. },
    interval_without_rows_that_is_passed_over_is_found:
        PassesOverEmptyIntervals, interval_without_rows_commits_its_positions, Finding::WrongPosition { .. },
    sink_that_counts_nothing_is_found:
        CountsNothing, nothing_is_visible_before_a_commit, Finding::Answer { .. },
    fence_of_another_class_is_found:
        FencesAsAFatalError, claim_fences_the_earlier_owner, Finding::Answer { .. },
}

/// [TPL-18]
#[tokio::test]
async fn random_histories_find_flaws() {
    for flaw in [
        Flaw::ClaimsWithoutAFence,
        Flaw::PositionsWithoutRows,
        Flaw::RowsWithoutPositions,
        Flaw::DiscardKeepsRows,
        Flaw::WritesAtOnce,
    ] {
        let failure = atomic::random_histories_agree_with_the_model(&Memory::with(flaw)).await.unwrap_err();
        assert!(failure.seed().is_some());
    }
}
