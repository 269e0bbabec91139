//! Calls of a job with checkpoints: what leaves, and what becomes of errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use levada_core::async_io::{AsyncSettings, Batching, CallError, OnError, RetryStrategy};
use levada_core::{Clock, ErrorClass, Timestamp};
use levada_engine::{Job, JobError};

use crate::scene::{Scene, Settings, chain, until_all_rest};
use crate::scripted::promptly;

fn patient() -> Settings {
    AsyncSettings::new().no_timeout().capacity(8)
}

/// [ASY-01] [ASY-02] many calls are in flight, and results leave in the order of the inputs.
#[tokio::test(start_paused = true)]
async fn results_leave_in_the_order_of_the_inputs() {
    let scene = Scene::new().await;
    let _job = scene.start(patient());
    scene.emit(3);
    scene.oracle.until_called(&[0, 1, 2]).await;
    scene.oracle.answer(1, Ok(vec![]));
    scene.oracle.answer(2, Ok(vec![20, 21]));
    scene.oracle.answer_well(0);
    scene.sink.until(&[0, 20, 21]).await;
}

/// [ASY-03] as they come, but a watermark does not overtake the inputs before it, nor is it overtaken: whatever is written has
/// seen the watermark in front of it and no other.
#[tokio::test(start_paused = true)]
async fn unordered_results_do_not_cross_watermarks() {
    let mut scene = Scene::new().await;
    scene.with_time = true;
    let _job = scene.start(patient().unordered().capacity(20));
    scene.emit(4);
    scene.oracle.until_called(&[0, 1, 2, 3]).await;
    for input in [3, 2, 1, 0] {
        scene.oracle.answer_well(input);
    }
    scene.sink.until(&[0, 10, 20, 30]).await;
    let watermarks: Vec<_> = scene.sink.seen.borrow().iter().map(|(_, watermark)| *watermark).collect();
    assert_eq!(watermarks, [Timestamp::MIN, Timestamp(0), Timestamp(1), Timestamp(2)]);
}

/// [ASY-03] without watermarks nothing holds a result up.
#[tokio::test(start_paused = true)]
async fn unordered_results_leave_as_they_come() {
    let scene = Scene::new().await;
    let _job = scene.start(patient().unordered());
    scene.emit(4);
    scene.oracle.until_called(&[0, 1, 2, 3]).await;
    for (place, input) in [2, 0, 3].into_iter().enumerate() {
        scene.oracle.answer_well(input);
        scene.sink.until(&[20, 0, 30][..=place]).await;
    }
}

/// [ASY-04] the last digit is the key: 0 and 6 … of six ways are different keys, so 1 waits for nobody.
#[tokio::test(start_paused = true)]
async fn results_of_one_key_keep_their_order() {
    let scene = Scene::new().await;
    let _job = scene.start(patient().key_ordered_by(|number| number % 2));
    scene.emit(4);
    scene.oracle.until_called(&[0, 1, 2, 3]).await;
    scene.oracle.answer_well(2);
    scene.oracle.answer_well(3);
    scene.oracle.answer_well(1);
    scene.sink.until(&[10, 30]).await;
    scene.oracle.answer_well(0);
    scene.sink.until(&[10, 30, 0, 20]).await;
}

/// [ASY-05] every output carries the timestamp of its input.
#[tokio::test(start_paused = true)]
async fn outputs_carry_the_timestamp_of_their_input() {
    let mut scene = Scene::new().await;
    (scene.with_time, scene.end) = (true, 3);
    scene.emit(3);
    scene.oracle.answers_from(0);
    let (seen, told) = std::sync::mpsc::channel();
    let job = Job::new("job")
        .source_function("numbers", scene.source())
        .async_map("tens", scene.oracle.clone(), patient())
        .for_each("seen", move |record, _| {
            seen.send((record.item, record.timestamp())).unwrap();
            Ok(())
        });
    promptly(job.run(scene.store.clone())).await.unwrap();
    let at = |millis| Some(Timestamp(millis));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(0, at(0)), (10, at(1)), (20, at(2))]);
}

/// [ASY-11] the default: the job fails at once, and names step and record; what stands before it has left.
#[tokio::test(start_paused = true)]
async fn failed_call_fails_the_job_and_names_the_record() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient());
    scene.emit(3);
    scene.oracle.until_called(&[0, 1, 2]).await;
    scene.oracle.answer(2, Err(CallError::bad_record("no such number")));
    let error = promptly(job.wait()).await.unwrap_err();
    assert_eq!(chain(&error), "async step \"tens\", subtask 0, record numbers-0@2: no such number");
    assert!(error.is_bad_record());
}

/// [ASY-11] dropped and counted; an outage is nobody's fault, and is not dropped.
#[tokio::test(start_paused = true)]
async fn bad_record_is_dropped_and_counted_and_an_outage_is_not() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient().on_error(OnError::Drop));
    scene.emit(3);
    scene.oracle.until_called(&[0, 1, 2]).await;
    scene.oracle.answer(0, Err(CallError::bad_record("no such number")));
    scene.oracle.answer_well(1);
    scene.sink.until(&[10]).await;
    assert_eq!(job.calls().snapshot()[0].metrics.dropped, 1);
    scene.oracle.answer(2, Err(CallError::new(ErrorClass::Reconnect, "the server is away")));
    let error = promptly(job.wait()).await.unwrap_err();
    assert!(chain(&error).contains("numbers-0@2: the server is away"), "{}", chain(&error));
}

/// [ASY-11] a dead letter goes on in line, as it was read.
#[tokio::test(start_paused = true)]
async fn dead_letter_goes_on_in_line() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient().on_error(OnError::DeadLetter));
    scene.emit(2);
    scene.oracle.until_called(&[0, 1]).await;
    scene.oracle.answer(1, Err(CallError::bad_record("no such number")));
    scene.oracle.answer_well(0);
    let error = promptly(job.wait()).await.unwrap_err();
    assert!(matches!(error, JobError::Refused { .. }), "{error:?}");
    assert!(chain(&error).contains("numbers-0@1") && chain(&error).contains("no such number"));
    assert_eq!(scene.sink.outputs(), [0]);
}

/// [ASY-06] [ASY-07] [ASY-15] called again as often as allowed, then the handler decides; all of it is counted.
#[tokio::test(start_paused = true)]
async fn timeout_ends_retries_and_its_handler_decides() {
    let scene = Scene::new().await;
    let retry = RetryStrategy::Fixed { delay: Duration::from_millis(300), retries: 9 };
    let settings = AsyncSettings::new()
        .timeout(Duration::from_secs(1))
        .retry(retry)
        .on_timeout(|number| Ok(vec![*number + 7]));
    let job = scene.start(settings);
    scene.emit(1);
    for calls in 1..=3 {
        scene.oracle.until_called(&vec![0; calls]).await;
        scene.oracle.answer(0, Err(CallError::new(ErrorClass::Retry, "busy")));
    }
    scene.oracle.until_called(&[0; 4]).await;
    scene.sink.until(&[7]).await;
    let metrics = job.calls().snapshot()[0].metrics;
    assert_eq!((metrics.timeouts, metrics.retries, metrics.calls, metrics.in_flight), (1, 3, 4, 0));
    assert_eq!((metrics.latency.count(), metrics.queue_wait.count()), (3, 1));
}

/// [ASY-12] up to three inputs a call, or as many as come within the delay.
#[tokio::test(start_paused = true)]
async fn batched_step_calls_with_many_inputs() {
    let mut scene = Scene::new().await;
    scene.end = 7;
    scene.emit(7);
    let (sink, (calls, made)) = (scene.sink.clone(), std::sync::mpsc::channel());
    let look_up = move |inputs: Vec<Arc<u64>>| {
        calls.send(inputs.len()).unwrap();
        async move { Ok(inputs.iter().map(|input| Ok(vec![**input * 10])).collect()) }
    };
    let batching = Batching { delay: Duration::from_millis(50), ..Batching::new(3) };
    let job = Job::new("job")
        .source_function("numbers", scene.source())
        .async_map_many("tens", look_up, patient().capacity(1), batching)
        .idempotent_sink("seen", move |_| sink.clone());
    promptly(job.run(scene.store.clone())).await.unwrap();
    assert_eq!(scene.sink.outputs(), [0, 10, 20, 30, 40, 50, 60]);
    assert_eq!(made.try_iter().collect::<Vec<_>>(), [3, 3, 1]);
}

/// [ASY-01] answers that come while the sink is busy, one more than the channel before it holds, leave as soon as it takes them:
/// behind the last of them nothing comes that would wake the step.
#[tokio::test(start_paused = true)]
async fn answers_that_come_while_the_sink_is_busy_leave() {
    let inputs = 0..20;
    let scene = Scene::new().await;
    let _job = scene.start(patient().unordered().capacity(20));
    scene.sink.keep_busy(true);
    scene.emit(inputs.end);
    scene.oracle.until(|called| called.len() == 20).await;
    for input in inputs.clone() {
        scene.oracle.answer_well(input);
        until_all_rest().await;
    }
    scene.sink.keep_busy(false);
    scene.sink.until(&inputs.map(|input| input * 10).collect::<Vec<_>>()).await;
}

/// A clock that a function sets forward.
#[derive(Debug, Default)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// [ASY-01] a function that blocks the stage, in its call or in a poll, is noticed; one that waits is not.
#[tokio::test(start_paused = true)]
async fn blocking_function_is_noticed() {
    let mut scene = Scene::new().await;
    (scene.end, scene.with_time) = (3, true);
    scene.emit(3);
    let hands = Arc::new(Hands::default());
    let (clock, sink) = (Arc::clone(&hands), scene.sink.clone());
    let function = move |number: Arc<u64>| {
        let hands = Arc::clone(&hands);
        if *number == 1 {
            hands.0.fetch_add(100, Ordering::Relaxed);
        }
        async move {
            if *number == 2 {
                hands.0.fetch_add(100, Ordering::Relaxed);
            }
            Ok(vec![*number])
        }
    };
    let job = Job::new("job")
        .source_function("numbers", scene.source())
        .async_map("slow", function, patient())
        .idempotent_sink("seen", move |_| sink.clone())
        .clock(clock);
    let mut job = job.start(scene.store.clone()).unwrap();
    promptly(job.wait()).await.unwrap();
    let stage = &job.calls().snapshot()[0];
    assert_eq!((&*stage.uid, stage.subtask, stage.metrics.blocking), ("slow", 0, 2));
}
