//! The broker goes away, and comes back.

use std::time::Duration;

use levada_testcontainers::Kafka;

use crate::job::{Kind, Setup};
use crate::look::Look as _;
use crate::scene::Scene;

/// How a broker goes away and comes back.
#[derive(Clone, Copy)]
struct Outage {
    begin: fn(&Kafka),
    end: fn(&Kafka),
}

/// Connections stay open, and nothing answers.
const STOPPED: Outage = Outage {
    begin: |kafka| kafka.pause().expect("a broker that runs"),
    end: |kafka| kafka.resume().expect("a broker that is stopped"),
};

const KILLED: Outage =
    Outage { begin: Kafka::kill, end: |kafka| kafka.restart().expect("a broker that starts again") };

const AWAY: &str = "the leader does not answer";

fn away(setup: Setup, outage: Outage) {
    let kafka = Kafka::start().expect("a broker");
    let scene = Scene::start_at(kafka.bootstrap(), setup);
    scene.read(0, &[1_000]);
    scene.partitions().skip(1).for_each(|partition| scene.read(partition, &[990]));
    scene.until("both", |time| {
        time.at_sink() == 979 && scene.partitions().all(|index| time.is_caught_up(index))
    });
    (outage.begin)(&kafka);
    scene.let_timeout_pass();
    let is_away = |time: &levada_engine::TimeSnapshot| {
        scene.partitions().all(|index| time.reason(index).as_deref() == Some(AWAY))
    };
    scene.until("no answer", is_away);
    scene.let_an_hour_pass();
    let time = scene.time().snapshot();
    assert!(is_away(&time), "{time:?}");
    assert_eq!((time.spent_idle(), time.at_sink()), (Duration::ZERO, 979), "no answer proves nothing");
    (outage.end)(&kafka);
    scene.clock.run();
    let time = scene.until("answers", |time| time.is_all_idle());
    assert!(scene.partitions().all(|index| time.is_idle(index)), "{time:?}");
    scene.until("the highest of all", |time| time.at_sink() == 989);
    scene.read(0, &[2_000]);
    scene.until("what comes now", |time| time.at_sink() == 1_989);
    let left = scene.stop();
    let others = setup.partitions as usize - 1;
    assert_eq!(left.numbers, [vec![990; others], vec![1_000, 2_000]].concat());
    assert_eq!(left.late, (0, 0));
}

/// [TIM-05] [TIM-06]
#[test]
fn broker_that_stands_still_blocks_the_partitions_of_an_atomic_job() {
    away(Setup::new(Kind::Atomic, 1, 2), STOPPED);
}

/// [TIM-05] [TIM-06]
#[test]
fn broker_that_was_killed_blocks_the_partitions_of_an_atomic_job() {
    away(Setup::new(Kind::Atomic, 1, 2), KILLED);
}

/// [TIM-05] [TIM-06]
#[test]
fn broker_that_stands_still_blocks_the_partitions_of_all_subtasks() {
    away(Setup::new(Kind::Checkpointed, 2, 4), STOPPED);
}

/// [TIM-05] [TIM-06]
#[test]
fn broker_that_was_killed_blocks_the_partitions_of_all_subtasks() {
    away(Setup::new(Kind::Checkpointed, 2, 4), KILLED);
}
