//! The life of segments, with the numbers of Flink's own cases.

use levada_core::{CheckpointId, ErrorChain, ErrorClass, State};
use levada_engine::driver::{DriverError, SinkDriver};

use crate::scripted::{barrier, context, deal, id, restored, time_of, write};
use crate::segments::{Driver, Target};

async fn opened(target: &Target) -> Driver {
    let mut driver = target.driver();
    driver.open(context(0, 1, 1), None).await.unwrap();
    driver
}

/// [TPL-08] Flink's `testIdealCircumstances`.
#[tokio::test]
async fn three_segments_are_all_sent_once() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    for sequence in 0..3 {
        write(&mut driver, 20 * sequence + 1..=20 * (sequence + 1)).await.unwrap();
        barrier(&mut driver, id(sequence)).await.unwrap();
        driver.complete(id(sequence)).await.unwrap();
    }
    assert_eq!(target.visible(), (1..=60).collect::<Vec<_>>());
    assert_eq!(driver.tally().published, 60);
}

/// [TPL-08] [CHK-04] Flink's `testDataPersistenceUponMissedNotify`.
#[tokio::test]
async fn a_segment_whose_notification_was_lost_is_sent_with_the_next() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    for sequence in 0..3 {
        write(&mut driver, 20 * sequence + 1..=20 * (sequence + 1)).await.unwrap();
        barrier(&mut driver, id(sequence)).await.unwrap();
        if sequence != 1 {
            driver.complete(id(sequence)).await.unwrap();
        }
    }
    assert_eq!(target.visible(), (1..=60).collect::<Vec<_>>());
    assert_eq!(target.sent_checkpoints(), [id(0), id(1), id(2)]);
}

/// [TPL-08] Flink's `testDataDiscardingUponRestore`.
#[tokio::test]
async fn records_behind_the_last_snapshot_are_dropped_by_a_restore() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, 1..=20).await.unwrap();
    let state = barrier(&mut driver, id(0)).await.unwrap();
    driver.complete(id(0)).await.unwrap();
    write(&mut driver, 21..=40).await.unwrap();
    driver.close().await;

    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(0), &state)).await.unwrap();
    write(&mut driver, 41..=60).await.unwrap();
    let next = CheckpointId::new(2, 1);
    barrier(&mut driver, next).await.unwrap();
    driver.complete(next).await.unwrap();
    assert_eq!(target.visible(), (1..=20).chain(41..=60).collect::<Vec<_>>());
}

/// [TPL-07] [TPL-08] Flink's `testScalingDown`.
#[tokio::test]
async fn segments_of_two_subtasks_come_together_and_keep_their_markers() {
    let target = Target::default();
    let mut states = Vec::new();
    for (subtask, numbers) in [(0, 1..=10), (1, 11..=21)] {
        let mut driver = target.driver();
        driver.open(context(subtask, 2, 1), None).await.unwrap();
        write(&mut driver, numbers).await.unwrap();
        states.push(barrier(&mut driver, id(1)).await.unwrap());
    }
    let dealt = deal(&states, 1);
    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(1), &dealt[0])).await.unwrap();
    assert!(target.visible().is_empty());
    write(&mut driver, 22..=33).await.unwrap();
    let next = CheckpointId::new(2, 1);
    barrier(&mut driver, next).await.unwrap();
    driver.complete(next).await.unwrap();
    assert_eq!(target.visible(), (1..=33).collect::<Vec<_>>());
    assert_eq!(target.markers(), ["job/sink/0/1-1", "job/sink/0/2-1", "job/sink/1/1-1"]);
    let times = target.lock().sent.iter().map(|(_, _, time, _)| *time).collect::<Vec<_>>();
    assert_eq!(times, [time_of(id(1)), time_of(id(1)), time_of(next)]);
}

/// [TPL-06] [TPL-08]
#[tokio::test]
async fn segments_of_several_subtasks_are_sent_in_the_order_of_their_checkpoints() {
    let target = Target::default();
    let mut states = Vec::new();
    for subtask in 0..3 {
        let mut driver = target.driver();
        driver.open(context(subtask, 3, 1), None).await.unwrap();
        write(&mut driver, [u64::from(subtask)]).await.unwrap();
        barrier(&mut driver, id(1)).await.unwrap();
        write(&mut driver, [u64::from(subtask) + 10]).await.unwrap();
        states.push(barrier(&mut driver, id(2)).await.unwrap());
    }
    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(2), &deal(&states, 1)[0])).await.unwrap();
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [0, 1, 2, 10, 11, 12]);
}

/// [TPL-08] Flink's `testScalingUp`: 10 on one, 11 old and 10 new on the other.
#[tokio::test]
async fn pending_segments_are_spread_over_two_subtasks() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, 1..=10).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    write(&mut driver, 11..=21).await.unwrap();
    let state = barrier(&mut driver, id(2)).await.unwrap();

    let next = CheckpointId::new(2, 1);
    let mut sent = Vec::new();
    for (subtask, share) in deal(&[state], 2).iter().enumerate() {
        let mut driver = target.driver();
        driver.open(context(subtask as u32, 2, 2), restored(id(2), share)).await.unwrap();
        if subtask == 1 {
            write(&mut driver, 22..=31).await.unwrap();
        }
        barrier(&mut driver, next).await.unwrap();
        driver.complete(next).await.unwrap();
        sent.push(driver.tally().published);
    }
    assert_eq!(sent, [10, 21]);
    assert_eq!(target.visible(), (1..=31).collect::<Vec<_>>());
    assert_eq!(target.markers(), ["job/sink/0/1-1", "job/sink/0/1-2", "job/sink/1/2-1"]);
}

/// [TPL-08] Flink's `testCommitterException`: 10, 11 and 12 records, and the 10 twice make 43.
#[tokio::test]
async fn a_committer_that_fails_on_a_query_sends_nothing_and_on_a_commit_repeats_one_segment() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    for (sequence, count) in [10, 11, 12].into_iter().enumerate() {
        write(&mut driver, 0..count).await.unwrap();
        barrier(&mut driver, id(sequence as u64)).await.unwrap();
    }
    target.lock().faults.fail("is_committed", ErrorClass::Fatal, 1);
    driver.complete(id(0)).await.unwrap();
    assert_eq!(target.visible().len(), 0);

    target.lock().faults.fail("commit", ErrorClass::Fatal, 1);
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible().len(), 10);

    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible().len(), 43);
    assert_eq!(target.sent_checkpoints(), [id(0), id(0), id(1), id(2)]);
    assert_eq!((driver.tally().held_back, driver.tally().pending()), (2, 0));
}

/// [TPL-06] Upstream goes on behind a "no"; the order would have a hole.
#[tokio::test]
async fn a_refused_segment_holds_back_those_behind_it() {
    for refuses in [true, false] {
        let target = Target::default();
        let mut driver = opened(&target).await;
        for sequence in 1..=3 {
            write(&mut driver, [sequence]).await.unwrap();
            barrier(&mut driver, id(sequence)).await.unwrap();
        }
        match refuses {
            true => target.lock().refusals = 1,
            false => target.lock().faults.fail("send", ErrorClass::Fatal, 1),
        }
        driver.complete(id(3)).await.unwrap();
        assert!(target.visible().is_empty());
        driver.complete(id(3)).await.unwrap();
        assert_eq!(target.visible(), [1, 2, 3]);
    }
}

/// [TPL-06] [CHK-05]
#[tokio::test]
async fn an_aborted_checkpoint_drops_nothing_and_the_next_one_covers_it() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [1]).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    driver.aborted(id(1));
    barrier(&mut driver, id(2)).await.unwrap();
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [1]);
}

/// [TPL-06] Not even an entry in the state.
#[tokio::test]
async fn an_interval_without_records_makes_no_segment() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, []).await.unwrap();
    let state = barrier(&mut driver, id(1)).await.unwrap();
    assert!(state.iter().all(|(_, list)| list.elements.is_empty()));
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.sent_checkpoints(), []);
}

/// Writes one segment and returns its state.
async fn one_segment(target: &Target) -> (Driver, State) {
    let mut driver = opened(target).await;
    write(&mut driver, [1, 2]).await.unwrap();
    let state = barrier(&mut driver, id(1)).await.unwrap();
    (driver, state)
}

/// [TPL-06]
#[tokio::test]
async fn a_restore_drops_what_was_committed_and_lets_the_rest_wait() {
    let target = Target::default();
    let (mut driver, _) = one_segment(&target).await;
    write(&mut driver, [3]).await.unwrap();
    let state = barrier(&mut driver, id(2)).await.unwrap();
    driver.complete(id(1)).await.unwrap();
    drop(driver);

    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(2), &state)).await.unwrap();
    let tally = driver.tally();
    assert_eq!((tally.restored, tally.known, tally.pending()), (3, 2, 1));
    assert_eq!(target.visible(), [1, 2]);
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [1, 2, 3]);
}

/// [TPL-06] The window of the template: between the send and its marker.
#[tokio::test]
async fn a_crash_between_send_and_marker_repeats_exactly_that_segment() {
    let target = Target::default();
    let (mut driver, state) = one_segment(&target).await;
    // is_committed, send with its effect, and no more
    target.lock().faults.light(1, true);
    driver.complete(id(1)).await.unwrap();
    target.lock().faults.revive();
    drop(driver);

    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(1), &state)).await.unwrap();
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [1, 2, 1, 2]);
}

/// [TPL-07] The same window with the marker in the data's transaction.
#[tokio::test]
async fn a_committer_that_shares_the_transaction_closes_the_window() {
    let target = Target::sharing();
    let (mut driver, state) = one_segment(&target).await;
    target.lock().faults.light(1, true);
    driver.complete(id(1)).await.unwrap();
    target.lock().faults.revive();
    drop(driver);

    let mut driver = target.driver();
    driver.open(context(0, 1, 2), restored(id(1), &state)).await.unwrap();
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [1, 2]);
    assert_eq!(driver.tally().known, 2);
}

/// [TPL-06] What is asked before each send: an error does not mean that nothing was done.
#[tokio::test]
async fn a_segment_whose_marker_was_committed_without_an_answer_is_not_sent_again() {
    let (apart, sharing) = (Target::default(), Target::sharing());
    for (target, verb) in [(apart, "commit"), (sharing, "send")] {
        let (mut driver, _) = one_segment(&target).await;
        target.lock().faults.lose_answer(verb);
        driver.complete(id(1)).await.unwrap();
        assert_eq!(driver.tally().held_back, 1);
        driver.complete(id(1)).await.unwrap();
        assert_eq!(target.visible(), [1, 2]);
        assert_eq!((driver.tally().known, driver.tally().pending()), (2, 0));
    }
}

/// [TPL-07] Each further notification would send the segment again.
#[tokio::test]
async fn a_send_without_its_promised_marker_fails_the_task() {
    let target = Target::sharing();
    target.lock().omits_marker = true;
    let (mut driver, _) = one_segment(&target).await;
    let error = driver.complete(id(1)).await.unwrap_err();
    assert!(matches!(error, DriverError::MarkerMissing { .. }), "{error:?}");
}

/// [CHK-11]
#[tokio::test(start_paused = true)]
async fn the_last_notification_sends_everything_with_back_off_or_fails() {
    let target = Target::default();
    let (mut driver, _) = one_segment(&target).await;
    write(&mut driver, [3]).await.unwrap();
    driver.finish().await.unwrap();
    assert!(matches!(write(&mut driver, [4]).await, Err(DriverError::AfterFinish)));
    barrier(&mut driver, id(2)).await.unwrap();

    // One that is not the last lets its segments wait.
    target.lock().refusals = 1;
    driver.complete(id(1)).await.unwrap();
    target.lock().refusals = 3;
    let error = driver.complete(id(2)).await.unwrap_err();
    assert_eq!(error.to_string(), "2 segments with 3 records could not be sent with the last checkpoint 1-2");
    target.lock().refusals = 2;
    driver.complete(id(2)).await.unwrap();
    assert_eq!(target.visible(), [1, 2, 3]);
}

/// [TPL-06] In pieces while the interval lasts: the state names them, and whoever restores it reads them.
#[tokio::test]
async fn a_long_interval_is_stored_in_pieces_before_its_barrier() {
    let target = Target::default();
    let mut driver = target.driver_with_pieces(40);
    driver.open(context(0, 1, 1), None).await.unwrap();
    for number in 1..=11 {
        write(&mut driver, [number]).await.unwrap();
    }
    // Nine bytes each: five of them make a piece.
    assert_eq!(target.lock().pieces.len(), 2);
    let state = barrier(&mut driver, id(1)).await.unwrap();
    drop(driver);

    let mut driver = target.driver_with_pieces(40);
    driver.open(context(0, 1, 2), restored(id(1), &state)).await.unwrap();
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), (1..=11).collect::<Vec<_>>());
}

/// [TPL-06] A store that does not answer holds the segment back; nothing of it is sent, and all of it later.
#[tokio::test]
async fn a_piece_that_cannot_be_read_at_the_moment_holds_its_segment_back() {
    let target = Target::default();
    let mut driver = target.driver_with_pieces(9);
    driver.open(context(0, 1, 1), None).await.unwrap();
    write(&mut driver, [1]).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    target.lock().faults.fail("get_piece", ErrorClass::Retry, 1);
    driver.complete(id(1)).await.unwrap();
    assert!(target.visible().is_empty());
    driver.complete(id(1)).await.unwrap();
    assert_eq!(target.visible(), [1]);
}

/// [TPL-06] What is missing or damaged is found so by every later notification, too: the task fails instead of waiting, with
/// the segment, the piece and the cause, and nothing of the segment or of later ones is sent.
#[tokio::test]
async fn a_missing_or_damaged_piece_fails_the_task() {
    for is_missing in [true, false] {
        let target = Target::default();
        let mut driver = target.driver_with_pieces(18);
        driver.open(context(0, 1, 1), None).await.unwrap();
        for number in 1..=5 {
            write(&mut driver, [number]).await.unwrap();
        }
        barrier(&mut driver, id(1)).await.unwrap();
        write(&mut driver, [6]).await.unwrap();
        barrier(&mut driver, id(2)).await.unwrap();
        let last = target.lock().pieces.pop_last().unwrap();
        if !is_missing {
            target.lock().pieces.insert(last.0, last.1[..10].to_vec());
        }
        let error = driver.complete(id(2)).await.unwrap_err();
        let text = ErrorChain(&error).to_string();
        assert!(
            text.starts_with("piece 2 of 3 of segment job/sink/0/1-1 with 5 records cannot be read: "),
            "{text}"
        );
        assert_eq!(text.contains("no such piece"), is_missing, "{text}");
        assert!(target.visible().is_empty());
    }
}

/// [CHK-08] A marker is kept as long as one of the two newest complete checkpoints holds its segment.
#[tokio::test]
async fn a_marker_is_forgotten_when_two_complete_checkpoints_are_without_its_segment() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    for sequence in 1..=4 {
        write(&mut driver, [sequence]).await.unwrap();
        barrier(&mut driver, id(sequence)).await.unwrap();
        driver.complete(id(sequence)).await.unwrap();
        driver.complete(id(sequence)).await.unwrap();
    }
    // Checkpoint 1 holds segment 1, checkpoints 2 and 3 do not.
    assert_eq!(target.lock().forgotten, [id(1), id(2)]);
    assert_eq!(target.markers(), ["job/sink/0/1-3", "job/sink/0/1-4"]);
}

/// [TPL-07] Before anything is asked or sent, an opening fences those before it off.
#[tokio::test]
async fn an_opening_fences_earlier_ones_off_first() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [1]).await.unwrap();
    let state = barrier(&mut driver, id(1)).await.unwrap();
    let mut next = target.driver();
    next.open(context(0, 1, 2), restored(id(1), &state)).await.unwrap();
    let first = context(0, 1, 2).first;
    assert_eq!(target.lock().fenced_for, Some(("sink".to_owned(), first)));

    target.lock().faults.fail("fence", ErrorClass::Fenced, 1);
    let refused = target.driver().open(context(0, 1, 2), restored(id(1), &state)).await.unwrap_err();
    assert!(refused.is_fenced(), "{refused}");
}

/// [TPL-06] What no later notification can mend fails the task, and stays in the checkpoint.
#[tokio::test]
async fn a_segment_with_a_bad_record_fails_the_task_and_stays() {
    for class in [ErrorClass::BadRecord, ErrorClass::Fenced] {
        let target = Target::default();
        let mut driver = opened(&target).await;
        write(&mut driver, [1]).await.unwrap();
        barrier(&mut driver, id(1)).await.unwrap();
        write(&mut driver, [2]).await.unwrap();
        let state = barrier(&mut driver, id(2)).await.unwrap();
        target.lock().faults.fail("send", class, 1);
        let error = driver.complete(id(2)).await.unwrap_err();
        assert_eq!(error.to_string(), "segment job/sink/0/1-1 cannot be sent");
        assert_eq!(error.is_fenced(), class == ErrorClass::Fenced);
        assert!(target.visible().is_empty());

        let mut next = target.driver();
        next.open(context(0, 1, 2), restored(id(2), &state)).await.unwrap();
        next.complete(id(2)).await.unwrap();
        assert_eq!(target.visible(), [1, 2]);
    }
}

/// [TPL-07] A job that starts with an empty store uses ids again. To take its segments as sent would lose them.
#[tokio::test]
async fn a_marker_of_a_segment_that_was_never_sent_fails_the_task() {
    let target = Target::default();
    let mut driver = opened(&target).await;
    write(&mut driver, [1]).await.unwrap();
    barrier(&mut driver, id(1)).await.unwrap();
    driver.complete(id(1)).await.unwrap();

    let mut anew = opened(&target).await;
    write(&mut anew, [2]).await.unwrap();
    barrier(&mut anew, id(1)).await.unwrap();
    let error = anew.complete(id(1)).await.unwrap_err();
    assert!(error.to_string().starts_with("segment job/sink/0/1-1 was never sent"), "{error}");
}
