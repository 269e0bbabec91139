//! Slots, timeouts, and what becomes of errors.

use levada_core::async_io::{AsyncSettings, Batching, CallError, OnError, Operator, Order, SettingsError};
use std::time::Duration;

use crate::scene::{Scene, Settings, millis, passing};

fn settings() -> Settings {
    AsyncSettings::new().capacity(3).timeout(millis(100))
}

/// [ASY-01] many calls are in flight, up to the capacity; a result that may not leave still has its slot.
#[test]
fn calls_are_made_up_to_the_capacity() {
    let mut scene = Scene::single(settings());
    scene.put([1, 2, 3]);
    assert_eq!(scene.made, [[1], [2], [3]]);
    assert!(!scene.operator.has_room(1));
    scene.answer(2, Ok(vec![20]));
    assert!(!scene.operator.has_room(1), "the first holds it up");
    scene.answer(1, Ok(vec![10]));
    assert_eq!(scene.leaving(), ["1: [10]", "2: [20]"]);
    assert!(scene.operator.has_room(1));
    assert_eq!(scene.metrics().in_flight, 1);
}

/// [ASY-01] > 0 enforced; and the other settings that cannot work.
#[test]
fn settings_that_cannot_work_are_refused() {
    let refused =
        |settings: Settings| Operator::<_, _, (), ()>::single(settings, Order::Ordered).unwrap_err();
    assert_eq!(refused(settings().capacity(0)), SettingsError::NoCapacity);
    assert_eq!(refused(settings().timeout(Duration::ZERO)), SettingsError::NoTime);
    for (delay, cannot_work) in [(99, false), (100, true), (101, true)] {
        let batching = Batching { delay: Duration::from_millis(delay), ..Batching::new(2) };
        let settings = settings().timeout(Duration::from_millis(100));
        let made = Operator::<_, _, (), ()>::batched(settings, batching, Order::Ordered);
        assert_eq!(made.err() == Some(SettingsError::GatheredTooLong), cannot_work, "{delay} ms");
    }
}

/// [ASY-05] 0..n outputs.
#[test]
fn input_has_none_or_many_outputs() {
    let mut scene = Scene::single(settings());
    scene.put([1, 2]);
    scene.answer(1, Ok(vec![]));
    scene.answer(2, Ok(vec![20, 21, 22]));
    assert_eq!(scene.leaving(), ["1: []", "2: [20, 21, 22]"]);
}

/// [ASY-06] the time of an input begins when it gets its slot, not when it arrives; its call is given up then, and its timer
/// is gone. The default is an error that fails the job.
#[test]
fn time_of_an_input_begins_with_its_slot() {
    let mut scene = Scene::single(settings());
    scene.put([1]);
    scene.at(60);
    scene.put([2]);
    scene.at(99);
    assert_eq!(scene.leaving(), [""; 0]);
    scene.at(100);
    assert_eq!(scene.open.values().collect::<Vec<_>>(), [&vec![2]]);
    assert_eq!(scene.operator.timers(), 1);
    assert!(scene.operator.failed().is_some());
    let left = scene.leaving();
    assert_eq!(left, ["1: failed, no answer within 100ms, over all attempts"]);
    scene.answer(2, Ok(vec![20]));
    assert_eq!(scene.leaving(), ["2: [20]"]);
    assert_eq!((scene.operator.timers(), scene.operator.wake_at()), (0, None));
}

/// [ASY-06] a value, or nothing: the handler decides.
#[test]
fn handler_decides_on_what_has_timed_out() {
    let handler = |input: &u32| match input {
        1 => Ok(vec![0]),
        2 => Ok(vec![]),
        _ => Err(CallError::bad_record("no row in time")),
    };
    let mut scene = Scene::single(settings().on_timeout(handler).on_error(OnError::DeadLetter));
    scene.put([1, 2, 3]);
    scene.at(100);
    assert_eq!(scene.leaving(), ["1: [0]", "2: []", "3: refused, no row in time"]);
    let metrics = scene.metrics();
    assert_eq!((metrics.timeouts, metrics.refused, metrics.in_flight), (3, 1, 0));
}

/// [ASY-05] [ASY-06] [ASY-15] an answer whose input has timed out meanwhile is not taken, and counted.
#[test]
fn late_answer_is_ignored_and_counted() {
    let mut scene = Scene::single(settings().on_timeout(|_| Ok(vec![0])));
    scene.put([1]);
    let id = *scene.open.keys().next().unwrap();
    scene.now = millis(100);
    scene.operator.wake(scene.now);
    scene.operator.answered(id, Ok(vec![Ok(vec![10])]), scene.now);
    scene.operator.answered(id, Ok(vec![Ok(vec![11])]), scene.now);
    assert_eq!(scene.leaving(), ["1: [0]"]);
    assert_eq!((scene.metrics().late, scene.metrics().timeouts), (2, 1));
}

/// [ASY-11] fail by default; drop and dead letter take what is the record's fault; a handler takes all.
#[test]
fn policy_decides_on_what_has_failed() {
    let policies: [(Settings, [&str; 2]); 4] = [
        (settings(), ["1: failed, bad", "2: failed, busy"]),
        (settings().on_error(OnError::Drop), ["1: dropped, bad", "2: failed, busy"]),
        (settings().on_error(OnError::DeadLetter), ["1: refused, bad", "2: failed, busy"]),
        (settings().handle_errors(|input, _| Ok(vec![*input, 0])), ["1: [1, 0]", "2: [2, 0]"]),
    ];
    for (settings, expected) in policies {
        let name = format!("{settings:?}");
        let mut scene = Scene::single(settings);
        scene.put([1, 2]);
        scene.answer(1, Err(CallError::bad_record("bad")));
        scene.answer(2, Err(passing()));
        assert_eq!(scene.leaving(), expected, "{name}");
    }
}

/// [ASY-15] how long inputs waited for their slot, and calls for their answer.
#[test]
fn waits_and_latencies_are_counted() {
    let mut scene = Scene::single(settings());
    scene.now = millis(7);
    scene.operator.accept(1.into(), (), 0, 1, millis(4), scene.now);
    scene.call();
    scene.at(20);
    scene.answer(1, Ok(vec![10]));
    let metrics = scene.metrics();
    assert_eq!((metrics.queue_wait.count(), metrics.queue_wait.sum()), (1, millis(3)));
    assert_eq!((metrics.latency.count(), metrics.latency.sum()), (1, millis(13)));
    assert_eq!((metrics.calls, metrics.in_flight, metrics.in_queue), (1, 0, 1));
}
