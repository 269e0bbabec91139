//! Calls that are made again.

use levada_core::async_io::{AsyncSettings, CallError, Operator, Order, RetryStrategy, SettingsError};

use crate::scene::{Scene, Settings, millis, passing};

fn settings() -> Settings {
    let retry = RetryStrategy::Fixed { delay: millis(10), retries: 3 };
    AsyncSettings::new().capacity(3).timeout(millis(1000)).retry(retry)
}

/// [ASY-07] one call and three retries, each after its delay; the last answer is what is delivered.
#[test]
fn failing_call_is_made_again_as_often_as_allowed() {
    let mut scene = Scene::single(settings());
    scene.put([1]);
    for attempt in 1..=3 {
        scene.answer(1, Err(passing()));
        scene.at(attempt * 10 - 1);
        assert_eq!(scene.made.len() as u64, attempt, "not before the delay is over");
        scene.at(attempt * 10);
        assert_eq!(scene.made.len() as u64, attempt + 1);
    }
    scene.answer(1, Err(CallError::bad_record("the last word")));
    assert_eq!(scene.leaving(), ["1: failed, the last word"]);
    assert_eq!((scene.made.len(), scene.metrics().retries, scene.operator.timers()), (4, 3, 0));
}

/// [ASY-07] by result as well as by error; an error that will not pass is not tried again.
#[test]
fn predicates_say_what_is_tried_again() {
    let mut scene = Scene::single(settings().retry_on_result(<[u32]>::is_empty));
    scene.put([1, 2]);
    scene.answer(1, Ok(vec![]));
    scene.answer(2, Err(CallError::bad_record("bad")));
    scene.at(10);
    scene.answer(1, Ok(vec![10]));
    assert_eq!(scene.leaving(), ["1: [10]", "2: failed, bad"]);
    assert_eq!(scene.made, [[1], [2], [1]]);
    let mut scene = Scene::single(settings().retry_on_error(|error| error.to_string() == "bad"));
    scene.put([1, 2]);
    scene.answer(1, Err(passing()));
    scene.answer(2, Err(CallError::bad_record("bad")));
    scene.at(10);
    assert_eq!(scene.made, [[1], [2], [2]]);
}

/// [ASY-07] a waiting retry keeps its slot, and holds up those behind it.
#[test]
fn waiting_retry_keeps_its_slot() {
    let mut scene = Scene::single(settings());
    scene.put([1, 2, 3]);
    scene.answer(1, Err(passing()));
    scene.answer(2, Ok(vec![20]));
    assert_eq!(scene.leaving(), [""; 0]);
    assert!(!scene.operator.has_room(1));
    scene.at(10);
    scene.answer(1, Ok(vec![10]));
    assert_eq!(scene.leaving(), ["1: [10]", "2: [20]"]);
}

/// [ASY-07] an answer to an attempt that is over is not one to the next.
#[test]
fn answer_counts_for_its_own_attempt_only() {
    let mut scene = Scene::single(settings());
    scene.put([1]);
    let first = *scene.open.keys().next().unwrap();
    scene.answer(1, Err(passing()));
    scene.operator.answered(first, Ok(vec![Ok(vec![11])]), scene.now);
    scene.at(10);
    scene.operator.answered(first, Ok(vec![Ok(vec![12])]), scene.now);
    assert_eq!(scene.leaving(), [""; 0]);
    scene.answer(1, Ok(vec![10]));
    assert_eq!((scene.leaving(), scene.metrics().late), (vec!["1: [10]".to_owned()], 2));
}

/// [ASY-06] [ASY-07] the timeout covers all attempts and is final: also while a retry waits, and whatever its handler makes of
/// it, there is no further call.
#[test]
fn timeout_ends_all_attempts() {
    let base = || settings().timeout(millis(25)).retry_on_result(<[u32]>::is_empty);
    let mut scene = Scene::single(base().on_timeout(|_| Ok(vec![])));
    scene.put([1]);
    scene.answer(1, Err(passing()));
    scene.at(10);
    scene.answer(1, Err(passing()));
    scene.at(20);
    scene.answer(1, Err(passing()));
    scene.at(25);
    assert_eq!(scene.leaving(), ["1: []"], "a result that would be tried again");
    assert_eq!((scene.operator.timers(), scene.operator.wake_at()), (0, None));
    scene.at(1000);
    assert_eq!((scene.made.len(), scene.metrics().timeouts), (3, 1));
    let mut scene = Scene::single(base());
    scene.put([1]);
    scene.at(25);
    assert!(scene.open.is_empty(), "the call was given up");
    scene.at(1000);
    assert_eq!(scene.made.len(), 1, "an error that would be tried again");
    assert_eq!(scene.leaving().len(), 1);
}

/// [ASY-10] a retry that waits gets one last attempt at once, and its outcome is final; so is that of calls in flight.
#[test]
fn end_of_input_gives_waiting_retries_one_last_attempt() {
    let mut scene = Scene::single(settings());
    scene.put([1, 2, 3]);
    scene.answer(1, Err(passing()));
    scene.operator.end(scene.now);
    scene.call();
    assert_eq!(scene.made, [[1], [2], [3], [1]]);
    scene.answer(1, Err(passing()));
    scene.answer(2, Err(passing()));
    assert_eq!(scene.leaving(), ["1: failed, busy", "2: failed, busy"]);
    assert_eq!(scene.metrics().timeouts, 0);
    scene.at(1000);
    assert_eq!(scene.leaving().len(), 1, "timers run while the rest drains");
    assert!(scene.operator.is_empty());
    assert_eq!(scene.made.len(), 4);
}

/// [ASY-07]
#[test]
fn strategies_that_cannot_retry_are_refused() {
    let refused =
        |settings: Settings| Operator::<_, _, (), ()>::single(settings, Order::Ordered).unwrap_err();
    let fixed = |delay, retries| settings().retry(RetryStrategy::Fixed { delay: millis(delay), retries });
    assert_eq!(refused(fixed(0, 1)), SettingsError::UnsoundRetry);
    assert_eq!(refused(fixed(1, 0)), SettingsError::UnsoundRetry);
    assert_eq!(refused(settings().no_timeout()), SettingsError::RetryWithoutTimeout);
}
