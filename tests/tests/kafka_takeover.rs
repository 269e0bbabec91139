//! A job from Kafka into Kafka that is taken over while it stands still, and one whose checkpoint is torn.
#![cfg(feature = "failpoints")]

use std::time::Duration;

use levada_testcontainers::{Kafka, wait_until};
use levada_tests::checkpointed::{Coordinators, Feed, Scene, Target, Told, Visible};
use levada_tests::process::{PATIENCE, Process};
use levada_tests::topic::Topic;
use nix::sys::signal::Signal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_checkpointed-under-test");

/// What the processes of a test share.
struct Stage {
    scene: Scene,
    visible: Visible,
    coordinators: Coordinators,
    output: String,
}

impl Stage {
    fn new() -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        let output = Topic::create(kafka.bootstrap(), 4).name;
        let target = Target::Topic(output.clone(), Duration::from_secs(900));
        Self {
            scene: Scene::new(PROGRAM, target),
            visible: Visible::of(kafka.bootstrap(), &output),
            coordinators: Coordinators::of(kafka.bootstrap(), &output),
            output,
        }
    }
}

/// Where a holder is stopped: with a checkpoint that is acknowledged and not in the log, in the middle of a pre-commit, between
/// EndTxn and its answer, and while it writes.
const STOPS: &[&str] = &[
    "store::entry::before:4",
    "kafka::freeze::after_marker:3",
    "kafka::end::sent:3",
    "kafka::write::after_batch:4",
];

/// Checks that a process that was taken over ends itself.
fn wake(mut holder: Process, place: &str) {
    holder.signal(Signal::SIGCONT);
    assert!(holder.ends_within(PATIENCE), "stopped at {place}, it goes on:\n{}", holder.log());
    let ended = holder.finish();
    assert_eq!(ended.code, Some(5), "stopped at {place}, it was taken over:\n{}", ended.log);
}

/// Has one holder after the other stopped and taken over, woken before the fence or behind it.
fn take_over(stage: &mut Stage, wakes_before_the_fence: bool) {
    let fed = Feed::into(stage.scene.topic());
    let (scene, visible) = (&stage.scene, &mut stage.visible);
    let ((), fed) = fed.beside(500, || {
        for place in STOPS {
            let holder = scene.stopped(2, place);
            let mut command = scene.command(&Told { takes_over: true, ..scene.told(3) });
            if wakes_before_the_fence {
                command.env("LEVADA_STOP_AT", "kafka::fence::before_list:1");
            }
            let mut taker = scene.start(command);
            if wakes_before_the_fence {
                taker.wait_until_stopped();
                wake(holder, place);
                taker.signal(Signal::SIGCONT);
                wait_for_more(visible, &mut taker);
            } else {
                wait_for_more(visible, &mut taker);
                wake(holder, place);
            }
            taker.signal(Signal::SIGTERM);
            taker.finish().expect_code(0);
        }
    });
    scene.drain();
    let contents = visible.judge_all(&fed).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(contents.committed.len() as u64, fed.values());
}

/// Waits until more is visible than was at the last look.
fn wait_for_more(visible: &mut Visible, writer: &mut Process) {
    let before = visible.records();
    let is_more = || {
        visible.look().unwrap_or_else(|wrong| panic!("{wrong}"));
        visible.records() > before || writer.has_ended()
    };
    wait_until(PATIENCE, "more visible records", is_more).expect("the job goes on");
    assert!(!writer.has_ended(), "it ended:\n{}", writer.log());
}

/// [KSK-16] [KSK-25] each wakes when another process has taken over, has fenced, and publishes.
#[test]
fn holder_that_wakes_behind_the_fence_publishes_nothing_and_ends_itself() {
    take_over(&mut Stage::new(), false);
}

/// [KSK-16] [KSK-25] each wakes when another process has the lease, and has not fenced yet.
#[test]
fn holder_that_wakes_before_the_fence_publishes_nothing_and_ends_itself() {
    take_over(&mut Stage::new(), true);
}

/// [KSK-14] [KSK-25] of two transactions of a checkpoint one is committed, and the other one is gone: the next start stops, says
/// which partitions and how many records, and changes nothing.
#[test]
fn torn_checkpoint_stops_the_next_start_with_partitions_and_counts() {
    let mut stage = Stage::new();
    let mut feed = Feed::into(stage.scene.topic());
    feed.send(500);
    stage.scene.topic().flush();
    stage.scene.drain_with(2);
    feed.send(500);
    stage.scene.topic().flush();
    let mut command = stage.scene.command(&stage.scene.told(2));
    // The first commit is carried out; the second one waits.
    command.env("FAILPOINTS", "kafka::commit::before_end=1*off->pause");
    command.env("LEVADA_STOP_AT", "kafka::commit::after_end:1");
    let mut torn = stage.scene.start(command);
    torn.wait_until_stopped();
    torn.kill();
    assert!(stage.coordinators.abort_what_is_open() > 0, "one waited");
    stage.visible.look().expect("an order");
    let before = stage.visible.records();
    assert!(500 < before && before < 1000, "{before} records are visible");

    let stopped = stage.scene.start(stage.scene.command(&stage.scene.told(2))).finish().expect_code(3);
    let partitions = format!(" records in {}[", stage.output);
    for part in ["is torn", "is visible", "is gone", &partitions] {
        assert!(stopped.log.contains(part), "no {part:?} in:\n{}", stopped.log);
    }
    stage.visible.look().expect("an order");
    assert_eq!(stage.visible.records(), before);
}
