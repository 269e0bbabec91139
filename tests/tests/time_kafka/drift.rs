//! Partitions that are let rest because they are ahead of their group.

use std::time::Duration;

use crate::job::{Kind, Setup};
use crate::look::Look as _;
use crate::scene::{HOUR, Scene};

const AHEAD: &str = "paused by drift";

/// Partition 1 runs ahead of partition 0, which a transaction blocks; then the other way round.
fn resting(kind: Kind, subtasks: u32) {
    let drift = Some(Duration::from_secs(1));
    let scene = Scene::start(Setup { drift, ..Setup::new(kind, subtasks, 2) });
    scene.read(0, &[1_000]);
    let open = scene.leave_open(0, &[1_500, 20_000]);
    scene.read(1, &[1_000, 10_000]);
    scene.until("partition 1 at rest", |time| time.reason(1).as_deref() == Some(AHEAD));
    scene.write(1, &[11_000, 12_000]);
    scene.let_timeout_pass();
    let behind = format!("behind an open transaction, at 1 of 3, {}", open.told());
    scene.until("partition 0 blocked", |time| time.reason(0).as_ref() == Some(&behind));
    scene.let_an_hour_pass();
    let time = scene.time().snapshot();
    assert_eq!((time.reason(0).as_deref(), time.reason(1).as_deref()), (Some(&*behind), Some(AHEAD)));
    assert!(time.split(1).is_some_and(|split| split.spent.ahead >= HOUR), "{time:?}");
    assert_eq!((time.spent_idle(), time.at_sink()), (Duration::ZERO, 989), "waited for, and never idle");
    assert_eq!(time.watermark(1), 9_989, "what waits at the broker is not read");
    open.commit();
    scene.until("what waited", |time| time.watermark(1) == 11_989);
    scene.until("partition 0 at rest", |time| time.reason(0).as_deref() == Some(AHEAD));
    scene.read(1, &[19_500]);
    scene.until("nobody at rest", |time| time.reason(0).is_none() && time.reason(1).is_none());
    let time = scene.until("the slower one", |time| time.at_sink() >= 19_489);
    assert_eq!(time.spent_idle(), Duration::ZERO);
    let left = scene.stop();
    assert_eq!(left.numbers, [1_000, 1_000, 1_500, 10_000, 11_000, 12_000, 19_500, 20_000]);
    assert_eq!(left.late, (0, 0));
}

/// [TIM-06] [TIM-17]
#[test]
fn partition_of_an_atomic_job_that_is_ahead_rests_and_is_not_idle_and_goes_on() {
    resting(Kind::Atomic, 1);
}

/// [TIM-06] [TIM-17]
#[test]
fn partition_of_a_job_with_checkpoints_that_is_ahead_rests_and_is_not_idle_and_goes_on() {
    resting(Kind::Checkpointed, 1);
}

/// [TIM-06] [TIM-17] all subtasks of a job share the group.
#[test]
fn partition_that_is_ahead_of_another_subtask_rests_and_is_not_idle_and_goes_on() {
    resting(Kind::Checkpointed, 2);
}
