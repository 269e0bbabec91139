//! Many inputs in one call.

use levada_core::async_io::{AsyncSettings, Batching, CallError, OnError, RetryStrategy};

use crate::scene::{Scene, Settings, millis, passing};

fn settings() -> Settings {
    AsyncSettings::new().capacity(2).timeout(millis(1000))
}

fn by_three() -> Batching {
    Batching { delay: millis(5), ..Batching::new(3) }
}

/// [ASY-12] up to N inputs, or those that have come when the first has waited for the delay.
#[test]
fn call_is_made_when_it_is_full_or_its_first_input_has_waited() {
    let mut scene = Scene::batched(settings(), by_three());
    scene.put([1, 2]);
    assert_eq!(scene.made.len(), 0);
    scene.at(2);
    scene.put([3, 4]);
    assert_eq!(scene.made, [[1, 2, 3]]);
    assert_eq!(scene.operator.wake_at(), Some(millis(7)));
    scene.at(6);
    assert_eq!(scene.made.len(), 1);
    scene.at(7);
    assert_eq!(scene.made[1], [4]);
}

/// [ASY-12] each input has its own result; a failure is that of the inputs concerned.
#[test]
fn partial_failure_fails_only_those_concerned() {
    let mut scene = Scene::batched(settings().on_error(OnError::Drop), by_three());
    scene.put([1, 2, 3]);
    let answers = vec![Ok(vec![10]), Err(CallError::bad_record("bad")), Ok(vec![30, 31])];
    scene.answer_all(&[1, 2, 3], Ok(answers));
    assert_eq!(scene.leaving(), ["1: [10]", "2: dropped, bad", "3: [30, 31]"]);
    scene.put([4, 5, 6]);
    scene.answer_all(&[4, 5, 6], Err(CallError::bad_record("all")));
    assert_eq!(scene.leaving(), ["4: dropped, all", "5: dropped, all", "6: dropped, all"]);
}

/// [ASY-12] [ASY-07] only what failed is called again, with whatever else comes.
#[test]
fn failed_inputs_are_called_again_in_a_later_call() {
    let retry = RetryStrategy::Fixed { delay: millis(10), retries: 1 };
    let mut scene = Scene::batched(settings().retry(retry), by_three());
    scene.put([1, 2, 3]);
    scene.answer_all(&[1, 2, 3], Ok(vec![Ok(vec![10]), Err(passing()), Ok(vec![30])]));
    scene.at(8);
    scene.put([4]);
    scene.at(10);
    assert_eq!(scene.made.len(), 1);
    scene.at(13);
    assert_eq!(scene.made[1..], [[4, 2]]);
    scene.answer_all(&[4, 2], Ok(vec![Ok(vec![40]), Ok(vec![20])]));
    assert_eq!(scene.leaving(), ["1: [10]", "2: [20]", "3: [30]", "4: [40]"]);
}

/// [ASY-12] results that cannot be told apart are nobody's: the job fails.
#[test]
fn wrong_number_of_results_fails_all_inputs_of_the_call() {
    let mut scene = Scene::batched(settings().on_error(OnError::Drop), by_three());
    scene.put([1, 2, 3]);
    scene.answer_all(&[1, 2, 3], Ok(vec![Ok(vec![10]), Ok(vec![20])]));
    let left = scene.leaving();
    let message = "failed, the function returned 2 results for 3 inputs: one each is expected";
    assert_eq!(left, [1, 2, 3].map(|input| format!("{input}: {message}")));
}

/// [ASY-12] [LKP-04] capacity counts calls; inputs are bounded by calls × N, or as told, and by bytes.
#[test]
fn capacity_counts_calls_and_inputs_are_bounded_by_themselves() {
    let mut scene = Scene::batched(settings(), by_three());
    scene.put(1..=6);
    assert_eq!(scene.made, [[1, 2, 3], [4, 5, 6]]);
    assert!(!scene.operator.has_room(1), "two calls of three inputs");
    let mut scene = Scene::batched(settings(), Batching { in_flight: Some(8), ..by_three() });
    scene.put(1..=8);
    assert_eq!(
        (scene.made.len(), scene.operator.has_room(1)),
        (2, false),
        "two calls, and two inputs for a third"
    );
    assert_eq!(scene.operator.wake_at(), Some(millis(1000)), "no call may begin: it waits for an answer");
    scene.answer_all(&[4, 5, 6], Ok(vec![Ok(vec![]), Ok(vec![]), Ok(vec![])]));
    scene.at(5);
    assert_eq!(scene.made[2], [7, 8]);
    let mut scene = Scene::batched(settings(), Batching { bytes: 2, ..by_three() });
    scene.put([1]);
    assert!(scene.operator.has_room(1) && !scene.operator.has_room(2));
    scene.at(5);
    scene.answer_all(&[1], Ok(vec![Ok(vec![])]));
    scene.leaving();
    assert!(scene.operator.has_room(7), "one is always let in");
}

/// [ASY-06] [ASY-12] of a call that goes on for others, the result of an input whose time is up is late.
#[test]
fn time_is_up_for_each_input_by_itself() {
    let mut scene = Scene::batched(settings().timeout(millis(8)).on_timeout(|_| Ok(vec![0])), by_three());
    scene.put([1]);
    scene.at(4);
    scene.put([2]);
    scene.at(5);
    assert_eq!(scene.made, [[1, 2]]);
    scene.at(8);
    assert_eq!(scene.leaving(), ["1: [0]"]);
    scene.answer_all(&[1, 2], Ok(vec![Ok(vec![10]), Ok(vec![20])]));
    assert_eq!(scene.leaving(), ["2: [20]"]);
    assert_eq!((scene.metrics().late, scene.metrics().timeouts), (1, 1));
    scene.put([3, 4]);
    scene.at(9);
    scene.put([5]);
    scene.at(17);
    assert!(scene.open.is_empty(), "the call was given up with the last input that waited for it");
}

/// [ASY-10] [ASY-12] what was gathered goes at once.
#[test]
fn end_of_input_does_not_wait_for_a_full_call() {
    let mut scene = Scene::batched(settings(), by_three());
    scene.put([1]);
    scene.operator.end(scene.now);
    scene.call();
    assert_eq!(scene.made, [[1]]);
}
