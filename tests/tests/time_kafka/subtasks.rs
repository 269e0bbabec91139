//! Jobs over several subtasks, of which some have nothing to read.

use levada_core::StreamStatus::{Active, Idle};
use levada_engine::TimeSnapshot;

use crate::job::{Kind, Setup};
use crate::look::Look as _;
use crate::scene::Scene;

/// Two partitions of one subtask, then the two of the other.
fn by_subtask(scene: &Scene) -> [u32; 4] {
    let time = scene.time().snapshot();
    let of_each: Vec<Vec<u32>> = time
        .sources
        .iter()
        .map(|source| source.splits.iter().map(|times| times.split.index).collect())
        .collect();
    let [first, second] = &of_each[..] else { panic!("two subtasks: {of_each:?}") };
    assert_eq!((first.len(), second.len()), (2, 2), "{of_each:?}");
    [first[0], first[1], second[0], second[1]]
}

fn status_of(time: &TimeSnapshot, partition: u32) -> Option<levada_core::StreamStatus> {
    time.reader_of(partition).map(|source| source.status)
}

/// [TIM-05] [TIM-14] a subtask whose partitions are all idle holds nobody back behind the exchange; a blocked one does.
#[test]
fn subtask_whose_partitions_are_all_idle_does_not_hold_back_the_others() {
    let scene = Scene::start(Setup::new(Kind::Checkpointed, 2, 4));
    let [read, empty, quiet, silent] = by_subtask(&scene);
    scene.read(read, &[1_000]);
    assert_eq!(scene.time().snapshot().at_sink(), i64::MIN);
    scene.let_timeout_pass();
    scene.until("the highest of all", |time| time.is_all_idle() && time.at_sink() == 989);
    scene.write(read, &[2_000]);
    let time = scene.until("what one says", |time| time.at_sink() == 1_989);
    assert!([empty, quiet, silent].into_iter().all(|partition| time.is_idle(partition)), "{time:?}");
    assert_eq!((status_of(&time, read), status_of(&time, quiet)), (Some(Active), Some(Idle)));
    scene.write(quiet, &[3_000]);
    scene.until("the other again", |time| time.watermark(quiet) == 2_989);
    scene.write(read, &[4_000]);
    let time = scene.until("the slower one", |time| time.at_sink() == 2_989);
    assert_eq!(status_of(&time, quiet), Some(Active));
    let left = scene.stop();
    assert_eq!((left.numbers, left.late), (vec![1_000, 2_000, 3_000, 4_000], (0, 0)));
}

/// [TIM-05] of an atomic job each subtask keeps the time of its own rows.
#[test]
fn subtasks_of_an_atomic_job_are_idle_each_by_itself() {
    let scene = Scene::start(Setup::new(Kind::Atomic, 2, 4));
    let [read, empty, quiet, silent] = by_subtask(&scene);
    scene.read(read, &[1_000]);
    let open = scene.leave_open(empty, &[1_500]);
    scene.let_timeout_pass();
    let behind = format!("behind an open transaction, at 0 of 1, {}", open.told());
    let is_blocked = |time: &TimeSnapshot| {
        time.reason(empty).as_ref() == Some(&behind) && time.is_idle(quiet) && time.is_idle(silent)
    };
    let time = scene.until("one blocked, one idle", is_blocked);
    assert_eq!((status_of(&time, read), status_of(&time, quiet)), (Some(Active), Some(Idle)));
    scene.read(quiet, &[5_000]);
    let time = scene.until("what the other says", |time| {
        time.reader_of(quiet).is_some_and(|source| source.watermark.0 == 4_989)
    });
    assert_eq!(time.reader_of(read).map(|source| source.watermark.0), Some(i64::MIN), "it waits for its own");
    open.commit();
    scene.until("what was committed", |time| time.watermark(empty) == 1_489);
    let left = scene.stop();
    assert_eq!((left.numbers, left.late), (vec![1_000, 1_500, 5_000], (0, 0)));
}

/// [TIM-05] [TIM-09] a subtask without any partition is idle from its first word on, without anybody asked.
#[test]
fn subtask_without_a_partition_is_idle_and_holds_nobody_back() {
    for kind in [Kind::Atomic, Kind::Checkpointed] {
        let scene = Scene::start(Setup::new(kind, 3, 2));
        let has_nothing = |time: &TimeSnapshot| {
            time.sources.iter().any(|source| source.splits.is_empty() && source.status == Idle)
        };
        scene.until("one without partitions", |time| time.sources.len() == 3 && has_nothing(time));
        scene.read(0, &[1_000]);
        scene.read(1, &[2_000]);
        let reached = |time: &TimeSnapshot, at| time.stages.iter().any(|stage| stage.watermark.0 == at);
        let time = scene.until("what the others say", |time| reached(time, 989));
        assert!(has_nothing(&time), "{time:?}");
        if kind == Kind::Checkpointed {
            scene.until("the same everywhere", |time| time.at_sink() == 989);
        }
        let left = scene.stop();
        assert_eq!((left.numbers, left.late), (vec![1_000, 2_000], (0, 0)), "{kind:?}");
    }
}
