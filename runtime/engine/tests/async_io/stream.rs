//! Calls over any stream, without a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use levada_core::ErrorClass;
use levada_core::async_io::{AsyncSettings, Batching, CallError, OnError, RetryStrategy};
use levada_engine::async_io::{over, over_many};
use tokio::time::{Instant, sleep_until};

/// Answers an input after as many milliseconds as it says.
async fn after(millis: Arc<u64>) -> Result<Vec<u64>, CallError> {
    sleep_until(Instant::now() + Duration::from_millis(*millis)).await;
    Ok(vec![*millis])
}

/// [ASY-02] [ASY-03] in the order of the inputs, or as they come; at once in both cases.
#[tokio::test(start_paused = true)]
async fn outputs_come_in_the_order_that_was_asked_for() {
    for (settings, expected) in
        [(AsyncSettings::new(), [30, 10, 20]), (AsyncSettings::new().unordered(), [10, 20, 30])]
    {
        let begun = Instant::now();
        let outputs = over(stream::iter([30_u64, 10, 20]), after, settings).unwrap();
        let outputs: Vec<_> = outputs.map(Result::unwrap).collect().await;
        assert_eq!(outputs, expected);
        assert!(begun.elapsed() < Duration::from_millis(40), "{:?}", begun.elapsed());
    }
}

/// [ASY-01] the stream is not read further ahead than the capacity.
#[tokio::test(start_paused = true)]
async fn stream_is_read_as_calls_find_room() {
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let items = stream::iter(1..=10_u64).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mut outputs = over(items, after, AsyncSettings::new().capacity(3)).unwrap();
    assert_eq!(outputs.next().await.unwrap().unwrap(), 1);
    assert_eq!(read.load(Ordering::Relaxed), 3);
    let rest: Vec<_> = outputs.by_ref().map(Result::unwrap).collect().await;
    assert_eq!(rest, (2..=10).collect::<Vec<_>>());
    let metrics = outputs.metrics();
    assert_eq!((metrics.calls, metrics.in_flight, metrics.latency.count()), (10, 0, 10));
}

/// [ASY-11] an error is yielded in its place, and what follows it as well; or nothing, by policy.
#[tokio::test(start_paused = true)]
async fn error_is_yielded_in_its_place() {
    let half = |number: Arc<u64>| async move {
        match *number % 2 {
            0 => Ok(vec![*number / 2]),
            _ => Err(CallError::bad_record(format!("{number} is odd"))),
        }
    };
    let outputs = |settings| async move {
        let outputs = over(stream::iter([2_u64, 3, 4]), half, settings).unwrap();
        outputs.map(|output| output.map_err(|error| error.to_string())).collect::<Vec<_>>().await
    };
    assert_eq!(outputs(AsyncSettings::new()).await, [Ok(1), Err("3 is odd".to_owned()), Ok(2)]);
    assert_eq!(outputs(AsyncSettings::new().on_error(OnError::Drop)).await, [Ok(1), Ok(2)]);
}

/// [ASY-07] [ASY-10] a retry is made after its delay, or at once when the stream has ended.
#[tokio::test(start_paused = true)]
async fn end_of_the_stream_gives_waiting_retries_one_last_attempt() {
    let calls = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&calls);
    let busy = move |_: Arc<u64>| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move { Err::<Vec<u64>, _>(CallError::new(ErrorClass::Retry, "busy")) }
    };
    let retry = RetryStrategy::Fixed { delay: Duration::from_secs(1), retries: 5 };
    let begun = Instant::now();
    let items = stream::iter([1_u64]).chain(stream::once(async {
        sleep_until(Instant::now() + Duration::from_millis(1500)).await;
        2
    }));
    let outputs = over(items, busy, AsyncSettings::new().retry(retry)).unwrap();
    assert_eq!(outputs.filter(|output| std::future::ready(output.is_err())).count().await, 2);
    assert_eq!(begun.elapsed(), Duration::from_millis(1500));
    // The first at 0 s, at 1 s, and at the end; the second when it came, and at the end.
    assert_eq!(made.load(Ordering::Relaxed), 5);
}

/// [ASY-12] many items a call.
#[tokio::test(start_paused = true)]
async fn many_items_are_answered_by_one_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&calls);
    let doubled = move |inputs: Vec<Arc<u64>>| {
        calls.fetch_add(1, Ordering::Relaxed);
        async move { Ok(inputs.iter().map(|input| Ok(vec![**input * 2])).collect()) }
    };
    let outputs =
        over_many(stream::iter(0..100_u64), doubled, AsyncSettings::new(), Batching::new(40)).unwrap();
    let outputs: Vec<_> = outputs.map(Result::unwrap).collect().await;
    assert_eq!(outputs, (0..100).map(|number| number * 2).collect::<Vec<_>>());
    assert_eq!(made.load(Ordering::Relaxed), 3);
}
