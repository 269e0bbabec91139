//! [TPL-18] Each flaw is found, in the scenario that is about it, with the finding that names it.

use levada_conformance::{Finding, write_ahead};

use crate::memory::{Flaw, Memory};

/// Lets a flawed sink fail a scenario.
macro_rules! fails {
    ($($test:ident: $make:ident $flaw:ident, $scenario:ident, $finding:pat,)*) => {$(
        /// [TPL-18]
        #[tokio::test]
        async fn $test() {
            let failure = write_ahead::$scenario(&Memory::$make(Flaw::$flaw)).await.unwrap_err();
            assert_eq!(failure.scenario(), stringify!($scenario));
            assert!(matches!(failure.finding(), $finding), "{failure}");
        }
    )*};
}

fails! {
    true_before_the_segment_is_durable_is_found: with
        TrueTooEarly, each_segment_is_sent_once_when_its_checkpoint_is_complete, Finding::Lost { .. },
    true_before_the_segment_is_durable_is_found_by_a_crash: sharing_with
        TrueTooEarly, crash_at_every_call_loses_nothing, Finding::Lost { .. },
    lost_record_is_found: with
        LosesTheLastRecord, each_segment_is_sent_once_when_its_checkpoint_is_complete, Finding::Lost { .. },
    lost_record_is_found_at_the_end: with
        LosesTheLastRecord, bounded_end_sends_everything, Finding::Lost { .. },
    lost_record_is_found_behind_an_aborted_checkpoint: with
        LosesTheLastRecord, aborted_checkpoint_drops_nothing, Finding::Lost { .. },
    lost_record_is_found_behind_late_notifications: with
        LosesTheLastRecord, late_and_repeated_notifications_change_nothing, Finding::Lost { .. },
    lost_record_is_found_behind_a_restart: with
        LosesTheLastRecord, records_behind_the_last_checkpoint_are_dropped, Finding::Lost { .. },
    changed_order_is_found: with
        ReversesARecordPair, each_segment_is_sent_once_when_its_checkpoint_is_complete, Finding::OutOfOrder { .. },
    doubled_segment_is_found: with
        SendsTwice, each_segment_is_sent_once_when_its_checkpoint_is_complete, Finding::Doubled { .. },
    segment_that_is_not_taken_is_found: with
        TakesNoSecondSegment, lost_notification_is_made_good_by_the_next, Finding::Refused { .. },
    repetition_that_is_refused_is_found: with
        FailsToSendAgain, crash_at_every_call_loses_nothing, Finding::Refused { .. },
    markers_that_die_with_their_process_are_found: with
        MarkersDieWithTheProcess, markers_outlive_their_process_and_are_not_confused, Finding::Answer { .. },
    markers_that_die_with_their_process_are_found_by_a_crash: with
        MarkersDieWithTheProcess, crash_at_every_call_loses_nothing, Finding::Answer { .. },
    markers_that_die_with_their_process_are_found_in_a_recovery: with
        MarkersDieWithTheProcess, segments_survive_a_change_of_parallelism, Finding::Answer { .. },
    last_marker_alone_is_found: with
        RemembersTheLastOnly, markers_outlive_their_process_and_are_not_confused, Finding::Answer { .. },
    last_marker_alone_is_found_by_a_change_of_parallelism: sharing_with
        RemembersTheLastOnly, segments_survive_a_change_of_parallelism, Finding::Answer { .. },
    confused_subtasks_are_found: with
        IgnoresTheSubtask, markers_outlive_their_process_and_are_not_confused, Finding::Answer { .. },
    confused_attempts_are_found: with
        IgnoresTheAttempt, markers_outlive_their_process_and_are_not_confused, Finding::Answer { .. },
    forgetting_too_much_is_found: with
        ForgetsEverything, markers_outlive_their_process_and_are_not_confused, Finding::Answer { .. },
    list_of_markers_that_replaces_a_later_one_is_found: with
        ReplacesTheListOfOthers, woken_opening_takes_no_marker_of_a_later_one_away, Finding::Answer { .. },
    data_without_its_marker_is_found: sharing_with
        ForgetsToWriteTheMarker, each_segment_is_sent_once_when_its_checkpoint_is_complete,
        Finding::Answer { .. } | Finding::Refused { .. },
    refused_repetition_is_found_in_a_recovery: with
        TakesNoSecondSegment, crash_at_every_call_of_a_recovery_loses_nothing, Finding::Refused { .. },
}

/// [TPL-18]
#[tokio::test]
async fn random_histories_find_flaws() {
    for target in [
        Memory::with(Flaw::TrueTooEarly),
        Memory::with(Flaw::MarkersDieWithTheProcess),
        Memory::sharing_with(Flaw::RemembersTheLastOnly),
        Memory::with(Flaw::IgnoresTheAttempt),
    ] {
        let failure = write_ahead::random_histories_agree_with_the_model(&target).await.unwrap_err();
        assert!(failure.seed().is_some());
    }
}
