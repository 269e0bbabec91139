//! Memory is bounded, and nothing is ever too large to be read.

use std::time::Duration;

use levada_core::{Budget, Polled, Source as _};
use levada_kafka::BatchBounds;

use super::support::{PATIENCE, Reading, Topic};

/// [SRC-27] nobody takes the records: the batches stay within their half of the budget, all splits are paused, and once
/// somebody takes them again, everything comes, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_reader_stays_within_its_budget() {
    let topic = Topic::new(4).await;
    for partition in 0..4 {
        topic.write_numbered(partition, 10_000, 400);
    }
    let budget = Budget::new(2 << 20);
    let small = BatchBounds { records: 500, bytes: 100 << 10, age: Duration::from_millis(5) };
    let mut reading = Reading::open_with(topic.bounded().batch_bounds(small), 0, 1, budget.clone()).await;
    let status = reading.source.status();
    // Batches are kept, as a sink does that does not get on.
    let mut kept = Vec::new();
    while !status.is_held_back() {
        let polled = tokio::time::timeout(Duration::from_millis(100), reading.poll_raw()).await;
        assert!(budget.used() <= budget.limit() / 2, "{} bytes", budget.used());
        if let Ok(Polled::Batch) = polled {
            kept.push(reading.builder.finish());
        }
    }
    assert!(budget.used() > budget.limit() / 4, "it was paused for want of budget");
    for (batch, positions) in kept {
        reading.take(&batch, positions);
    }
    let reading = reading.read_to_end().await;
    for index in 0..4 {
        assert_eq!(reading.offsets(&topic.split(index)), (0..10_000).collect::<Vec<_>>());
    }
    assert!(!status.is_held_back() && status.pauses() > 0);
    assert_eq!(budget.used(), 0, "every permit came back");
}

/// [SRC-27] nobody polls at all: the splits are paused as well, and go on later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_does_not_poll_is_held_back_and_goes_on() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 30_000, 100);
    topic.write_numbered(1, 30_000, 100);
    let mut reading = Reading::open(topic.bounded()).await;
    reading.poll().await.expect("assigned");
    let status = reading.source.status();
    levada_testcontainers::wait_until(PATIENCE, "all splits paused", || status.is_held_back())
        .expect("in time");
    let reading = reading.read_to_end().await;
    for index in 0..2 {
        assert_eq!(reading.offsets(&topic.split(index)), (0..30_000).collect::<Vec<_>>());
    }
}

/// [SRC-28] with default limits of everything on the reader's side; and with a budget that is smaller than the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_40_megabytes_is_read() {
    const SIZE: usize = 40 << 20;
    let topic = Topic::with(1, &[("max.message.bytes", "50000000")]).await;
    topic.write(0, ["before"]);
    topic.write_numbered(0, 1, SIZE);
    topic.write(0, ["after"]);
    for budget in [Budget::new(256 << 20), Budget::new(8 << 20)] {
        let mut reading = Reading::open_with(topic.bounded(), 0, 1, budget.clone()).await;
        let mut sizes = Vec::new();
        loop {
            match reading.poll_raw().await {
                Polled::Batch => {
                    let (batch, _) = reading.builder.finish();
                    sizes.extend(
                        batch.records().iter().map(|record| batch.value(&record.origin).map(<[u8]>::len)),
                    );
                }
                Polled::End => break,
                _ => {}
            }
        }
        reading.source.close().await;
        assert_eq!(sizes, [Some(6), Some(SIZE), Some(5)]);
        assert_eq!(budget.used(), 0);
    }
}
