//! The broker goes away and comes back.

use levada_core::Source as _;
use levada_testcontainers::Kafka;

use super::support::{PATIENCE, Reading, Topic};

/// [SRC-26] a broker that is away is a state: it can be seen, and reading goes on where it stood.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_goes_on_after_the_broker_was_killed_and_restarted() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 2, &[]).await;
    topic.write_numbered(0, 40_000, 100);
    topic.write_numbered(1, 40_000, 100);
    // A small prefetch, so that most is still at the broker when it dies.
    let config = topic
        .config()
        .property("queued.max.messages.kbytes", "256")
        .property("reconnect.backoff.max.ms", "500");
    let mut reading = Reading::open(config).await;
    reading.until(|reading| reading.count() > 0).await;
    broker.kill();
    let status = reading.source.status();
    reading.until_either(|_| status.is_cut_off()).await;
    let before = reading.count();
    assert!(before < 80_000, "the broker was killed too late to matter");
    broker.restart().expect("restart");
    topic.write(0, ["last"]);
    reading.until(|reading| reading.count() == 80_001).await;
    for (index, count) in [(0, 40_001), (1, 40_000)] {
        assert_eq!(reading.offsets(&topic.split(index)), (0..count).collect::<Vec<_>>());
    }
    reading.until_either(|_| !status.is_cut_off()).await;
    assert!(status.errors() > 0 && status.last_error().is_some());
    reading.source.close().await;
}

/// Closing does not wait for a broker that is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_while_the_broker_is_away() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    topic.write(0, ["a"]);
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| reading.count() == 1).await;
    broker.kill();
    tokio::time::timeout(PATIENCE, reading.source.close()).await.expect("closed in time");
}
