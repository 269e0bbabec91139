//! A job from Kafka into Kafka whose newest checkpoint is torn.
#![cfg(feature = "failpoints")]

use std::time::Duration;

use levada_testcontainers::Kafka;
use levada_tests::checkpointed::{Coordinators, Feed, Scene, Target, Visible};
use levada_tests::topic::Topic;

const PROGRAM: &str = env!("CARGO_BIN_EXE_checkpointed-under-test");

/// [KSK-14] [KSK-25] of two transactions of a checkpoint one is committed, and the other one is gone: the next start stops, says
/// which partitions and how many records, and changes nothing.
#[test]
fn torn_checkpoint_stops_the_next_start_with_partitions_and_counts() {
    let kafka = Kafka::shared().expect("Kafka");
    let output = Topic::create(kafka.bootstrap(), 4).name;
    let scene = Scene::new(PROGRAM, Target::Topic(output.clone(), Duration::from_secs(900)));
    let mut visible = Visible::of(kafka.bootstrap(), &scene.topic().name, &output);
    let mut feed = Feed::into(scene.topic());
    feed.send(500);
    scene.topic().flush();
    scene.drain_with(2);
    feed.send(500);
    scene.topic().flush();
    let mut command = scene.command(&scene.told(2));
    // The first commit is carried out; the second one waits.
    command.env("FAILPOINTS", "kafka::commit::before_end=1*off->pause");
    command.env("LEVADA_STOP_AT", "kafka::commit::after_end:1");
    let mut torn = scene.start(command);
    torn.wait_until_stopped();
    torn.kill();
    assert!(Coordinators::of(kafka.bootstrap(), &output).abort_what_is_open() > 0, "one waited");
    visible.look().expect("an order");
    let before = visible.records();
    assert!(500 < before && before < 1000, "{before} records are visible");

    let stopped = scene.start(scene.command(&scene.told(2))).finish().expect_code(3);
    let partitions = format!(" records in {}[", output);
    for part in ["is torn", "is visible", "is gone", &partitions] {
        assert!(stopped.log.contains(part), "no {part:?} in:\n{}", stopped.log);
    }
    visible.look().expect("an order");
    assert_eq!(visible.records(), before);
}
