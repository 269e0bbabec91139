//! How a job with calls in flight ends.

use std::time::Duration;

use levada_core::ErrorClass;
use levada_core::async_io::{AsyncSettings, CallError, RetryStrategy};
use levada_engine::Drain;

use crate::scene::{Scene, Settings};
use crate::scripted::promptly;

fn patient() -> Settings {
    AsyncSettings::new().no_timeout().capacity(8)
}

/// [ASY-10] a retry that waits for an hour gets its last attempt at once, and everything drains.
#[tokio::test(start_paused = true)]
async fn bounded_end_gives_waiting_retries_one_last_attempt_and_drains() {
    let mut scene = Scene::new().await;
    scene.end = 2;
    let hour = Duration::from_secs(3600);
    let retry = RetryStrategy::Fixed { delay: hour, retries: 9 };
    let begun = tokio::time::Instant::now();
    let mut job = scene.start(AsyncSettings::new().timeout(hour * 9).retry(retry));
    scene.emit(1);
    scene.oracle.until_called(&[0]).await;
    scene.oracle.answer(0, Err(CallError::new(ErrorClass::Retry, "busy")));
    scene.emit(2);
    scene.oracle.until(|called| called.len() == 3).await;
    scene.oracle.answer_well(0);
    scene.oracle.answer_well(1);
    let report = promptly(job.wait()).await.unwrap();
    assert!(report.last.is_some());
    assert_eq!(scene.sink.outputs(), [0, 10]);
    assert!(begun.elapsed() < hour);
}

/// [ASY-10] timers run while the rest drains: a call that is stuck has its timeout.
#[tokio::test(start_paused = true)]
async fn stuck_call_times_out_while_the_rest_drains() {
    let mut scene = Scene::new().await;
    scene.end = 1;
    scene.emit(1);
    let settings = AsyncSettings::new().on_timeout(|_| Ok(vec![99]));
    promptly(scene.job(1, settings).run(scene.store.clone())).await.unwrap();
    assert_eq!(scene.sink.outputs(), [99]);
}

/// [ASY-10] cancel does not wait.
#[tokio::test(start_paused = true)]
async fn cancel_does_not_wait_for_calls() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient());
    scene.emit(2);
    scene.oracle.until_called(&[0, 1]).await;
    job.cancel();
    promptly(job.wait()).await.unwrap_err();
    assert_eq!(scene.sink.outputs(), [0; 0]);
}

/// [ASY-08] [ASY-10] a stop does not wait either: what is in flight is in the last checkpoint, and is called by the next start.
#[tokio::test(start_paused = true)]
async fn stop_leaves_what_is_in_flight_to_the_next_start() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient());
    scene.emit(2);
    scene.oracle.until_called(&[0, 1]).await;
    promptly(job.stop()).await.unwrap();
    promptly(job.wait()).await.unwrap();
    assert_eq!(scene.sink.outputs(), [0; 0]);
    scene.oracle.forget();
    scene.oracle.answers_from(0);
    let _job = scene.start(patient());
    scene.emit(3);
    scene.sink.until(&[0, 10, 20]).await;
    assert_eq!(scene.oracle.called(), [0, 1, 2]);
}

/// [ASY-10] with a drain nobody goes on, so everything leaves before the job stops.
#[tokio::test(start_paused = true)]
async fn drained_job_waits_for_its_calls() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient());
    scene.emit(2);
    scene.oracle.until_called(&[0, 1]).await;
    {
        let mut stopping = std::pin::pin!(job.stop_with_savepoint(Drain::Yes));
        let early = tokio::time::timeout(Duration::from_secs(30), &mut stopping).await;
        assert!(early.is_err(), "the savepoint waits for the calls");
        scene.oracle.answer_well(1);
        scene.oracle.answer_well(0);
        promptly(stopping).await.unwrap();
    }
    promptly(job.wait()).await.unwrap();
    assert_eq!(scene.sink.outputs(), [0, 10]);
}
