//! What is decided once a job before its subtasks open.

use std::time::Duration;

use levada_core::template::Fate::{self, Aborted, Committed, Pending, Unknown};
use levada_core::template::{TransactionName, TwoPhaseCommitSink};
use levada_core::{CheckpointId, State};
use levada_engine::driver::{Decision, JobRecovery, SinkDriver, TimeoutTooShort, check_timeout, decide};

use crate::scripted::{barrier, context, id, restored, write};
use crate::transactions::Target;

fn of(attempt: u64, sequence: u64) -> CheckpointId {
    CheckpointId::new(attempt, sequence)
}

/// Decides over a checkpoint 2 of which `old` were covered by checkpoint 1 already.
fn decided(old: &[Fate], new: &[Fate]) -> Decision {
    let old = old.iter().map(|fate| (id(1), *fate));
    let fates = old.chain(new.iter().map(|fate| (id(2), *fate))).collect::<Vec<_>>();
    decide(&fates, Some(id(1)))
}

/// [TPL-12]
#[test]
fn everything_is_committed_when_nothing_is_gone() {
    for new in [&[][..], &[Pending], &[Committed], &[Pending, Committed]] {
        for old in [&[][..], &[Pending], &[Committed]] {
            assert_eq!(decided(old, new), Decision::CommitAll);
        }
    }
}

/// [TPL-12]
#[test]
fn a_checkpoint_of_which_nothing_is_visible_can_be_rolled_back() {
    let back = Decision::RollBack { to: Some(id(1)) };
    assert_eq!(decided(&[Committed, Pending], &[Aborted, Pending]), back);
    assert_eq!(decided(&[], &[Aborted]), back);
    assert_eq!(decide(&[(id(2), Aborted)], None), Decision::RollBack { to: None });
}

/// [TPL-12] Rolling back would repeat what is visible; committing would leave a hole.
#[test]
fn a_checkpoint_that_is_partly_visible_and_partly_gone_is_torn() {
    assert_eq!(decided(&[], &[Aborted, Committed]), Decision::Torn { aborted: 1, committed: 1 });
    assert_eq!(decided(&[], &[Aborted, Committed, Unknown]), Decision::Torn { aborted: 1, committed: 1 });
}

/// [TPL-12] The restore of the checkpoint before does not read those records again.
#[test]
fn a_transaction_that_is_gone_and_older_than_the_checkpoint_before_cannot_be_rolled_back() {
    assert_eq!(decided(&[Aborted], &[Pending]), Decision::Torn { aborted: 1, committed: 0 });
}

/// [TPL-12]
#[test]
fn a_forgotten_transaction_stops_the_job() {
    assert_eq!(decided(&[], &[Pending, Unknown]), Decision::Unknown { unknown: 1 });
    assert_eq!(decided(&[Unknown], &[Aborted]), Decision::Unknown { unknown: 1 });
}

/// [TPL-12] All 3^5 combinations against the two sentences that matter.
#[test]
fn no_decision_loses_or_doubles_a_record() {
    let fates = [Pending, Committed, Aborted];
    for number in 0..3_usize.pow(5) {
        let of = |place: u32| fates[number / 3_usize.pow(place) % 3];
        let (old, new) = ([of(0), of(1)], [of(2), of(3), of(4)]);
        match decided(&old, &new) {
            // Every record becomes visible.
            Decision::CommitAll => assert!(!old.iter().chain(&new).any(|fate| *fate == Aborted)),
            // Nothing that will be read again is visible, and nothing that will not be is gone.
            Decision::RollBack { .. } => {
                assert!(!new.contains(&Committed) && !old.contains(&Aborted) && new.contains(&Aborted));
            }
            Decision::Torn { .. } => {
                assert!(old.contains(&Aborted) || (new.contains(&Aborted) && new.contains(&Committed)));
            }
            other => panic!("{other:?} though the target told everything"),
        }
    }
}

/// Two subtasks, checkpoints 1 and 2, no notification; one more transaction stays open.
async fn two_subtasks(target: &Target) -> (Vec<State>, Vec<State>) {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for subtask in 0..2 {
        let mut driver = target.driver();
        driver.open(context(subtask, 2, 1), None).await.unwrap();
        let number = u64::from(subtask);
        write(&mut driver, [number]).await.unwrap();
        first.push(barrier(&mut driver, id(1)).await.unwrap());
        write(&mut driver, [number + 10]).await.unwrap();
        second.push(barrier(&mut driver, id(2)).await.unwrap());
        write(&mut driver, [number + 20]).await.unwrap();
    }
    (first, second)
}

async fn restore(target: &Target, checkpoint: CheckpointId, states: &[State]) {
    for (subtask, state) in states.iter().enumerate() {
        let mut driver = target.driver();
        driver.open(context(subtask as u32, 2, 2), restored(checkpoint, state)).await.unwrap();
    }
}

/// [TPL-12]
#[tokio::test]
async fn the_fence_ends_what_no_checkpoint_names_and_keeps_what_pends() {
    let target = Target::default();
    let (_, second) = two_subtasks(&target).await;
    let mut sink = target.sink();
    let recovery = JobRecovery::<String>::read(&second).unwrap();
    let decision = recovery.inspect(&mut sink, Some(id(1))).await.unwrap();
    assert_eq!(decision, Decision::CommitAll);
    recovery.fence(&mut sink, of(2, 1), Some(id(2))).await.unwrap();
    let (open, pending) = target.left_over();
    assert_eq!((open.len(), pending.len()), (0, 4));

    restore(&target, id(2), &second).await;
    assert_eq!(target.visible(), [0, 10, 1, 11]);
}

/// [TPL-12]
#[tokio::test]
async fn a_roll_back_drops_the_newest_checkpoint_and_restores_the_one_before() {
    let target = Target::default();
    let (first, second) = two_subtasks(&target).await;
    target.expire("1-2-1");
    let mut sink = target.sink();
    let recovery = JobRecovery::<String>::read(&second).unwrap();
    assert_eq!(recovery.records().into_iter().collect::<Vec<_>>(), [(id(1), 2), (id(2), 2)]);
    let decision = recovery.inspect(&mut sink, Some(id(1))).await.unwrap();
    assert_eq!(decision, Decision::RollBack { to: Some(id(1)) });
    // A process that dies in between does it again.
    for _ in 0..2 {
        recovery.roll_back(&mut sink, Some(id(1))).await.unwrap();
        recovery.fence(&mut sink, of(2, 1), Some(id(1))).await.unwrap();
    }
    restore(&target, id(1), &first).await;
    assert_eq!(target.visible(), [0, 1]);
    assert_eq!(target.left_over(), (vec![], vec![]));
}

/// [TPL-12]
#[tokio::test]
async fn a_start_without_a_checkpoint_ends_everything_of_earlier_attempts() {
    let target = Target::default();
    two_subtasks(&target).await;
    let nothing: [&State; 0] = [];
    let recovery = JobRecovery::<String>::read(nothing).unwrap();
    recovery.fence(&mut target.sink(), of(2, 1), None).await.unwrap();
    assert_eq!(target.left_over(), (vec![], vec![]));
    assert!(target.visible().is_empty());
}

/// [TPL-12] What bears the name of a checkpoint that the fencing start may not have taken is of a later one, or its own. Numbers
/// of two digits, because attempts do not compare as texts.
#[tokio::test]
async fn a_fence_spares_what_is_named_from_its_first_checkpoint_on() {
    let target = Target::default();
    let mut sink = target.sink();
    for checkpoint in [of(9, 11), of(10, 4), of(10, 5), of(11, 1), of(100, 1)] {
        let mut handle = sink.begin(&TransactionName { subtask: 0, checkpoint }).await.unwrap();
        sink.pre_commit(&mut handle).await.unwrap();
    }
    let nothing: [&State; 0] = [];
    JobRecovery::<String>::read(nothing).unwrap().fence(&mut sink, of(10, 5), None).await.unwrap();
    assert_eq!(target.left_over().1, ["10-5-0", "100-1-0", "11-1-0"]);
}

/// [TPL-15]
#[test]
fn a_timeout_must_cover_interval_checkpoint_and_downtime() {
    let seconds = Duration::from_secs;
    let check =
        |timeout: Option<u64>| check_timeout(timeout.map(seconds), seconds(60), seconds(600), seconds(3600));
    assert_eq!(check(None), Ok(()));
    assert_eq!(check(Some(4260)), Ok(()));
    let expected = TimeoutTooShort {
        timeout: seconds(4259),
        interval: seconds(60),
        checkpoint_timeout: seconds(600),
        downtime: seconds(3600),
    };
    assert_eq!(expected.needed(), seconds(4260));
    assert_eq!(check(Some(4259)), Err(expected));
}
