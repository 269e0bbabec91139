//! Partitions without data.

use levada_core::StreamStatus;

use crate::job::{Kind, Setup};
use crate::look::Look as _;
use crate::scene::Scene;

/// Partition 0 has records, 1 has none.
fn partition_without_data(kind: Kind) {
    let scene = Scene::start(Setup::new(kind, 1, 2));
    scene.read(0, &[1_000]);
    let time = scene.time().snapshot();
    assert_eq!(time.at_sink(), i64::MIN, "partition 1 has said nothing");
    scene.let_timeout_pass();
    let time = scene.until("both idle", |time| time.is_all_idle());
    assert!(time.is_idle(0) && time.is_idle(1), "{time:?}");
    scene.until("the highest of all", |time| time.at_sink() == 989);
    scene.write(0, &[2_000]);
    let time = scene.until("what partition 0 alone says", |time| time.at_sink() == 1_989);
    assert!(time.is_idle(1), "{time:?}");
    scene.write(1, &[3_000]);
    let time = scene.until("partition 1 again", |time| time.watermark(1) == 2_989);
    assert_eq!((time.at_sink(), time.sources[0].status), (1_989, StreamStatus::Active), "{time:?}");
    let left = scene.stop();
    assert_eq!((left.numbers, left.late), (vec![1_000, 2_000, 3_000], (0, 0)));
}

/// [TIM-05] [TIM-10] never idle before the leader was asked; then the others go on without it.
#[test]
fn partition_without_data_does_not_hold_back_an_atomic_job() {
    partition_without_data(Kind::Atomic);
}

/// [TIM-05] [TIM-10]
#[test]
fn partition_without_data_does_not_hold_back_a_job_with_checkpoints() {
    partition_without_data(Kind::Checkpointed);
}
