//! The life of transactions, with the numbers of Flink's own cases.

use std::sync::Arc;
use std::time::Duration;

use levada_core::{CheckpointId, ErrorClass, State};
use levada_engine::driver::{DriverError, LossPolicy, SinkDriver, TwoPhaseOptions};
use tokio::time::Instant;

use crate::scripted::{ManualClock, barrier, context, context_at, deal, id, restored, write};
use crate::transactions::{Driver, Target};

async fn opened(target: &Target) -> Driver {
    let mut driver = target.driver();
    driver.open(context(0, 1, 1), None).await.unwrap();
    driver
}

/// Writes 42, 43, … with a barrier behind each, and 45 behind the last.
async fn three_checkpoints(target: &Target) -> Driver {
    let mut driver = opened(target).await;
    for sequence in 0..3 {
        write(&mut driver, [42 + sequence]).await.unwrap();
        barrier(&mut driver, id(sequence)).await.unwrap();
    }
    write(&mut driver, [45]).await.unwrap();
    driver
}

async fn reopen(target: &Target, checkpoint: CheckpointId, state: &State) -> Driver {
    let mut driver = target.driver();
    driver.open(context(0, 1, checkpoint.attempt + 1), restored(checkpoint, state)).await.unwrap();
    driver
}

/// [TPL-11] Flink's `testNotifyOfCompletedCheckpoint`.
#[tokio::test]
async fn a_notification_commits_everything_up_to_it_and_nothing_behind() {
    let target = Target::default();
    let mut driver = three_checkpoints(&target).await;
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [42, 43]);
    assert_eq!(target.left_over(), (vec![String::from("1-3-0")], vec![String::from("1-2-0")]));
    assert_eq!(driver.tally().pending(), 2);
}

/// [TPL-11] [CHK-04] Flink's `testSubsumedNotificationOfPreviousCheckpoint`.
#[tokio::test]
async fn a_late_notification_of_a_subsumed_checkpoint_finds_nothing_to_do() {
    let target = Target::default();
    let mut driver = three_checkpoints(&target).await;
    for sequence in [2, 1, 2] {
        driver.complete(id(sequence)).await.unwrap();
    }
    assert_eq!(target.visible(), [42, 43, 44]);
}

/// [TPL-12] Flink's `testFailBeforeNotify`.
#[tokio::test]
async fn what_was_snapshot_before_a_failure_is_committed_by_the_restore() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [42]).await.unwrap();
    barrier(&mut driver, id(0)).await.unwrap();
    write(&mut driver, [43]).await.unwrap();
    let snapshot = barrier(&mut driver, id(1)).await.unwrap();
    target.lock().faults.fail("begin", ErrorClass::Fatal, 1);
    write(&mut driver, [44]).await.unwrap_err();
    driver.close().await;

    let driver = reopen(&target, id(1), &snapshot).await;
    assert_eq!(target.visible(), [42, 43]);
    assert_eq!(target.left_over(), (vec![], vec![]));
    assert_eq!((driver.tally().restored, driver.tally().published, driver.tally().pending()), (2, 2, 0));
}

/// [TPL-14]
#[tokio::test]
async fn a_transaction_begins_with_its_first_record_and_an_empty_one_never_does() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, []).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.take_calls(), ["open 0/1"]);

    write(&mut driver, [1]).await.unwrap();
    write(&mut driver, [2]).await.unwrap();
    barrier(&mut driver, id(2)).await.unwrap();
    driver.complete(id(2)).await.unwrap();
    assert_eq!(
        target.take_calls(),
        ["begin 1-2-0", "write 1-2-0", "write 1-2-0", "pre_commit 1-2-0", "commit 1-2-0"]
    );
}

/// [TPL-11] [CHK-05] The name stays that of the checkpoint that never was, the coverage is the next one's.
#[tokio::test]
async fn an_aborted_checkpoint_drops_nothing_and_the_next_one_covers_it() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [1]).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    driver.aborted(id(1));
    write(&mut driver, [2]).await.unwrap();
    barrier(&mut driver, id(2)).await.unwrap();
    assert!(target.visible().is_empty());
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [1, 2]);
}

/// [TPL-11]
#[tokio::test]
async fn an_interval_whose_barrier_was_left_out_is_covered_by_the_next() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    barrier(&mut driver, id(1)).await.unwrap();
    write(&mut driver, [1]).await.unwrap();
    barrier(&mut driver, id(5)).await.unwrap();
    driver.complete(id(4)).await.unwrap();
    assert!(target.visible().is_empty());
    driver.complete(id(5)).await.unwrap();
    assert_eq!(target.visible(), [1]);
}

/// [TPL-11] [TPL-13] The order is kept: nothing newer becomes visible before what could not be committed.
#[tokio::test(start_paused = true)]
async fn a_failing_commit_stops_those_behind_it() {
    let target = Target::default();
    let mut driver = three_checkpoints(&target).await;
    target.lock().faults.fail("commit", ErrorClass::Reconnect, 3);
    let error = driver.complete(id(2)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "transaction \"1-0-0\" with 1 records of checkpoint 1-0 was not committed in 3 attempts and waits"
    );
    assert!(target.visible().is_empty());
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [42, 43, 44]);
}

/// [TPL-13]
#[tokio::test(start_paused = true)]
async fn a_retriable_commit_is_tried_again_within_the_notification_with_growing_pauses() {
    let target = Target::default();
    let mut driver = three_checkpoints(&target).await;
    target.lock().faults.fail("commit", ErrorClass::Retry, 2);
    let begun = Instant::now();
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [42, 43]);
    // 100 and 200 ms, and up to as much again for the jitter.
    let waited = begun.elapsed();
    assert!((300..=610).contains(&waited.as_millis()), "{waited:?}");
}

/// [TPL-10] [TPL-13]
#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_is_repeated_without_effect() {
    let target = Target::default();
    let mut driver = three_checkpoints(&target).await;
    target.lock().faults.lose_answer("commit");
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [42, 43]);
}

/// [TPL-13]
#[tokio::test]
async fn a_lost_transaction_fails_loudly_with_handle_checkpoint_and_record_count() {
    for class in [ErrorClass::Fatal, ErrorClass::Fenced, ErrorClass::BadRecord] {
        let target = Target::default();
        let mut driver = three_checkpoints(&target).await;
        target.lock().faults.fail("commit", class, 1);
        let error = driver.complete(id(1)).await.unwrap_err();
        assert_eq!(error.to_string(), "1 records of checkpoint 1-0 are lost with transaction \"1-0-0\"");
        assert_eq!(error.is_fenced(), class == ErrorClass::Fenced);
        assert!(target.visible().is_empty());
    }
}

/// [TPL-13]
#[tokio::test]
async fn going_on_after_a_loss_is_opt_in_and_counted() {
    let target = Target::default();
    let options = TwoPhaseOptions { on_loss: LossPolicy::Continue, ..TwoPhaseOptions::default() };
    let mut driver = target.driver_with(options);
    driver.open(context(0, 1, 1), None).await.unwrap();
    write(&mut driver, [1, 2, 3]).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    write(&mut driver, [4]).await.unwrap();
    barrier(&mut driver, id(2)).await.unwrap();
    target.expire("1-0-0");
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [4]);
    let tally = driver.tally();
    assert_eq!((tally.lost_transactions, tally.lost, tally.published, tally.pending()), (1, 3, 1, 0));
}

/// Leaves one transaction pending that was begun at 0 and whose timeout is 1000 ms.
async fn one_pending(target: &Target, clock: &Arc<ManualClock>, options: TwoPhaseOptions) -> (Driver, State) {
    target.lock().timeout = Some(Duration::from_millis(1000));
    let mut driver = target.driver_with(options);
    driver.open(context_at(clock, 1), None).await.unwrap();
    write(&mut driver, [42]).await.unwrap();
    let state = barrier(&mut driver, id(1)).await.unwrap();
    (driver, state)
}

/// [TPL-13] [TPL-15] Flink's `testIgnoreCommitExceptionDuringRecovery`: the begin time is in the state.
#[tokio::test]
async fn a_restored_transaction_past_its_timeout_can_be_tolerated_and_one_before_it_cannot() {
    let options = TwoPhaseOptions { on_loss: LossPolicy::ContinueAfterTimeout, ..TwoPhaseOptions::default() };
    let (target, clock) = (Target::default(), Arc::<ManualClock>::default());
    let (mut driver, state) = one_pending(&target, &clock, options).await;
    target.expire("1-0-0");

    clock.set(1001);
    let written_here = driver.complete(id(1)).await;
    assert!(matches!(written_here, Err(DriverError::Lost { .. })));

    clock.set(1000);
    let mut early = target.driver_with(options);
    let error = early.open(context_at(&clock, 2), restored(id(1), &state)).await.unwrap_err();
    assert!(matches!(error, DriverError::Lost { records: 1, .. }), "{error:?}");

    clock.set(1001);
    let mut late = target.driver_with(options);
    late.open(context_at(&clock, 3), restored(id(1), &state)).await.unwrap();
    assert_eq!((late.tally().lost, late.tally().lost_transactions), (1, 1));
}

/// [TPL-13] A target that is away is no loss, however long ago the transaction was begun.
#[tokio::test(start_paused = true)]
async fn a_target_that_is_away_is_never_taken_for_a_loss() {
    let options = TwoPhaseOptions { on_loss: LossPolicy::Continue, ..TwoPhaseOptions::default() };
    let (target, clock) = (Target::default(), Arc::<ManualClock>::default());
    let (mut driver, state) = one_pending(&target, &clock, options).await;
    clock.set(100_000);
    target.lock().faults.fail("commit", ErrorClass::Reconnect, 6);
    assert!(matches!(driver.complete(id(1)).await, Err(DriverError::Uncommitted { .. })));
    let mut next = target.driver_with(options);
    let opened = next.open(context_at(&clock, 2), restored(id(1), &state)).await;
    assert!(matches!(opened, Err(DriverError::Uncommitted { .. })));
}

/// [TPL-15] Flink's `testLogTimeoutAlmostReachedWarningDuringCommit`: 502 of 1000 ms with ratio 0.5.
#[tokio::test]
async fn a_commit_close_to_the_timeout_is_warned_about() {
    for (now, warn_at, warnings) in [(502, 0.5, 1), (498, 0.5, 0), (0, 0.0, 1), (999, 1.0, 0)] {
        let options = TwoPhaseOptions { warn_at: Some(warn_at), ..TwoPhaseOptions::default() };
        let (target, clock) = (Target::default(), Arc::<ManualClock>::default());
        let (mut driver, _) = one_pending(&target, &clock, options).await;
        clock.set(now);
        driver.complete(id(1)).await.unwrap();
        assert_eq!(driver.tally().timeout_warnings, warnings, "at {now} ms with {warn_at}");
        assert_eq!(target.visible(), [42]);
    }
}

/// [TPL-15] Flink's `testLogTimeoutAlmostReachedWarningDuringRecovery`.
#[tokio::test]
async fn a_restored_commit_close_to_the_timeout_is_warned_about() {
    let options = TwoPhaseOptions { warn_at: Some(0.5), ..TwoPhaseOptions::default() };
    let (target, clock) = (Target::default(), Arc::<ManualClock>::default());
    let (_, state) = one_pending(&target, &clock, options).await;
    clock.set(502);
    let mut driver = target.driver_with(options);
    driver.open(context_at(&clock, 2), restored(id(1), &state)).await.unwrap();
    assert_eq!(driver.tally().timeout_warnings, 1);
    assert_eq!(target.visible(), [42]);
}

/// [TPL-12] Each entry in turn, its pending ones first: the open one is from a program that left one open.
#[tokio::test]
async fn a_restore_commits_what_pends_before_it_aborts_what_was_open() {
    let target = Target::default();
    let state = crate::golden::state_with_an_open_transaction();
    // None of them is known to this target: an unknown one is fine to abort, and its commit is a loss.
    let options = TwoPhaseOptions { on_loss: LossPolicy::Continue, ..TwoPhaseOptions::default() };
    let mut driver = target.driver_with(options);
    driver.open(context(0, 1, 9), restored(id(4), &state)).await.unwrap();
    assert_eq!(target.take_calls(), ["open 0/1", "commit 3-1-0", "commit 3-2-0", "abort 3-3-0"]);
    assert_eq!(target.lock().restored_contexts, [b"context".to_vec()]);
    assert_eq!((driver.tally().lost_transactions, driver.tally().lost), (2, 5));
}

/// [TPL-12] [TPL-10]
#[tokio::test]
async fn all_entries_are_handled_after_scaling_in_and_none_is_fine_after_scaling_out() {
    let target = Target::default();
    let mut states = Vec::new();
    for subtask in 0..3 {
        let mut driver = target.driver();
        driver.open(context(subtask, 3, 1), None).await.unwrap();
        write(&mut driver, [u64::from(subtask)]).await.unwrap();
        barrier(&mut driver, id(1)).await.unwrap();
        write(&mut driver, [u64::from(subtask) + 10]).await.unwrap();
        target.lock().context = Some(vec![subtask as u8]);
        states.push(barrier(&mut driver, id(2)).await.unwrap());
    }
    let dealt = deal(&states, 1);
    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(2), &dealt[0])).await.unwrap();
    assert_eq!(target.visible(), [0, 10, 1, 11, 2, 12]);
    assert_eq!(target.lock().restored_contexts, [[0], [1], [2]]);

    let state = barrier(&mut driver, CheckpointId::new(2, 1)).await.unwrap();
    for (subtask, share) in deal(&[state], 2).iter().enumerate() {
        let mut driver = target.driver();
        let restored = restored(CheckpointId::new(2, 1), share);
        driver.open(context(subtask as u32, 2, 3), restored).await.unwrap();
    }
    assert_eq!(target.visible().len(), 6);
}

/// [TPL-10] A restore that dies behind its commits is repeated by the next.
#[tokio::test]
async fn a_restore_can_be_repeated() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [1]).await.unwrap();
    let state = barrier(&mut driver, id(1)).await.unwrap();
    drop(driver);
    for _ in 0..3 {
        reopen(&target, id(1), &state).await;
    }
    assert_eq!(target.visible(), [1]);
}

/// [TPL-11]
#[tokio::test]
async fn close_aborts_the_open_transaction_only() {
    let target = Target::default();
    let mut driver = three_checkpoints(&target).await;
    target.take_calls();
    driver.close().await;
    assert_eq!(target.take_calls(), ["abort 1-3-0", "close"]);
    assert_eq!(target.left_over().1.len(), 3);
}

/// [TPL-11] A record of a failed write is in nobody's transaction.
#[tokio::test]
async fn a_transaction_whose_write_or_pre_commit_failed_is_aborted_by_close() {
    for verb in ["write", "pre_commit"] {
        let target = Target::default();
        let mut driver = opened(&target).await;
        target.lock().faults.fail(verb, ErrorClass::Reconnect, 1);
        let written = write(&mut driver, [1]).await;
        let snapshot = barrier(&mut driver, id(1)).await;
        assert!(written.is_err() != snapshot.is_err());
        if written.is_ok() {
            driver.close().await;
            assert_eq!(target.take_calls().last_chunk::<2>().unwrap(), &["abort 1-0-0", "close"]);
        }
    }
}

/// [CHK-11] Flink's `testNoTransactionAfterSinkFunctionFinish`.
#[tokio::test]
async fn no_transaction_is_begun_after_the_end() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [42]).await.unwrap();
    barrier(&mut driver, id(0)).await.unwrap();
    write(&mut driver, [43]).await.unwrap();
    driver.finish().await.unwrap();
    assert!(matches!(write(&mut driver, [44]).await, Err(DriverError::AfterFinish)));
    barrier(&mut driver, id(1)).await.unwrap();
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [42, 43]);

    barrier(&mut driver, id(2)).await.unwrap();
    driver.complete(id(2)).await.unwrap();
    driver.close().await;
    assert!(!target.take_calls().iter().any(|call| call.starts_with("abort")));
}

/// [CHK-11] Flink's `testRecoverFromStateAfterFinished`.
#[tokio::test]
async fn restoring_the_state_of_an_ended_stream_aborts_nothing() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [42]).await.unwrap();
    driver.finish().await.unwrap();
    let state = barrier(&mut driver, id(0)).await.unwrap();
    drop(driver);
    target.take_calls();
    reopen(&target, id(0), &state).await;
    assert_eq!(target.take_calls(), ["open 0/1", "commit 1-0-0"]);
}

/// [CHK-01] A name is used once, so a barrier that comes twice would be a bug to hide.
#[tokio::test]
async fn a_barrier_that_does_not_rise_is_refused() {
    let mut driver = opened(&Target::default()).await;
    barrier(&mut driver, id(2)).await.unwrap();
    let error = barrier(&mut driver, id(2)).await.unwrap_err();
    assert_eq!(error.to_string(), "barrier 1-2 is below 1-3, the next one that can come");
}
