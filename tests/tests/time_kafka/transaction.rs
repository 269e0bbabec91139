//! Partitions behind an open transaction.

use crate::job::{Kind, Setup};
use crate::lines;
use crate::look::Look as _;
use crate::scene::{HOUR, Left, Scene};
use crate::watched::Proof;

/// What is written: to the first partition, to the last one, and to that in the transaction. The others stay empty.
const ALL: [i64; 5] = [990, 1_000, 1_005, 1_010, 2_000];

/// The last partition has an open transaction in front. What is then seen, up to its end.
fn blocked(setup: Setup) {
    let scene = Scene::start(setup);
    let last = setup.partitions.unsigned_abs() - 1;
    let reader = |partition| scene.time().snapshot().reader_of(partition).map(|source| source.subtask);
    assert_eq!(reader(0) == reader(last), setup.subtasks == 1, "they are far from each other");
    scene.read(0, &[1_000]);
    scene.read(last, &[990]);
    let open = scene.leave_open(last, &[1_005, 1_010]);
    scene.let_timeout_pass();
    // Another client tells whose it is.
    let told = open.told();
    let behind = format!("behind an open transaction, at 1 of 3, {told}");
    let stands = |time: &levada_engine::TimeSnapshot| {
        time.reason(last).as_ref() == Some(&behind) && (0..last).all(|other| time.is_idle(other))
    };
    scene.until("the reason", stands);
    let split = format!("{}-{last}", scene.topic.name);
    let producer = format!("producer_id={}", told.producer_id);
    let since = format!("open_since={}", told.since.expect("a beginning"));
    lines::wait_for(
        &split,
        &["an open transaction hangs", "last_stable_offset=1", "high_watermark=3", &producer, &since],
    );
    scene.read(0, &[2_000]);
    scene.until("the one that is blocked", |time| time.at_sink() == 979);
    scene.let_an_hour_pass();
    let time = scene.time().snapshot();
    let split = time.split(last).expect("the last partition");
    assert_eq!(time.reason(last), Some(behind));
    assert!(split.spent.blocked >= HOUR && split.spent.idle.is_zero(), "{split:?}");
    assert_eq!(time.at_sink(), 979, "blocked for an hour, and waited for");
    open.commit();
    scene.until("what was committed", |time| time.at_sink() == 999);
    let left = scene.stop();
    assert_eq!((left.numbers, left.late), (ALL.to_vec(), (0, 0)));
}

/// [TIM-06] [TIM-21]
#[test]
fn partition_behind_an_open_transaction_holds_the_watermark_of_an_atomic_job_and_tells_why() {
    blocked(Setup::new(Kind::Atomic, 1, 3));
}

/// [TIM-06] [TIM-21]
#[test]
fn partition_behind_an_open_transaction_holds_the_watermark_of_a_job_with_checkpoints_and_tells_why() {
    blocked(Setup::new(Kind::Checkpointed, 1, 3));
}

/// [TIM-06] [TIM-13] the subtask that reads it holds the watermark behind the exchange, whatever the other one says.
#[test]
fn partition_behind_an_open_transaction_holds_the_watermark_of_all_subtasks_behind_an_exchange() {
    blocked(Setup::new(Kind::Checkpointed, 2, 4));
}

/// Commits a transaction that was open for longer than the timeout, after the others have gone on as far as they may.
fn committed_late(kind: Kind, proof: Proof) -> Left {
    let scene = Scene::start(Setup { proof, ..Setup::new(kind, 1, 3) });
    scene.read(0, &[1_000]);
    scene.read(2, &[990]);
    let open = scene.leave_open(2, &[1_005, 1_010]);
    scene.let_timeout_pass();
    scene.until("partition 1 idle", |time| time.is_idle(1) && !time.is_caught_up(2));
    scene.read(0, &[2_000]);
    let held_at = match proof {
        Proof::LeaderAsked => 979,
        Proof::TimePassed => 1_989,
    };
    scene.until("how far it may go", |time| time.at_sink() == held_at);
    open.commit();
    scene.until("what was committed", |time| time.watermark(2) == 999);
    scene.stop()
}

/// [TIM-05] [TIM-06] the counter-test: were it enough that time has passed, the records of the transaction would be late.
#[test]
fn what_was_committed_is_late_where_time_alone_is_taken_for_proof_and_not_where_the_leader_is_asked() {
    for kind in [Kind::Atomic, Kind::Checkpointed] {
        let left = committed_late(kind, Proof::LeaderAsked);
        assert_eq!((left.numbers, left.late), (ALL.to_vec(), (0, 0)), "{kind:?}");
        let left = committed_late(kind, Proof::TimePassed);
        assert_eq!((left.numbers, left.late), (ALL.to_vec(), (2, 2)), "{kind:?}: late, and flows on");
    }
}
