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

/// [SRC-26] [SRC-30] a broker that stands still for so long that another client takes the place of the one that read: what
/// was read, what rests and what waits to be read are as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_goes_on_with_another_client_after_the_broker_has_stood_still() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 4, &[]).await;
    topic.write_numbered(0, 40_000, 100);
    topic.write_numbered(1, 40_000, 100);
    let (resting, paused) = (topic.split(2), topic.split(3));
    // A small prefetch, so that most is still at the broker when it stands still; and requests that give up soon.
    let config = topic
        .config()
        .property("queued.max.messages.kbytes", "256")
        .property("socket.timeout.ms", "2000")
        .property("reconnect.backoff.max.ms", "500");
    let mut reading = Reading::open(config).await;
    let (status, control) = (reading.source.status(), reading.source.control());
    reading.until(|reading| reading.assignment.is_some()).await;
    reading.source.pause(std::slice::from_ref(&resting)).expect("pause");
    control.pause(std::slice::from_ref(&paused));
    reading.until(|reading| reading.count() > 0).await;
    broker.pause().expect("pause");
    reading.until_either(|_| status.renewals() > 0).await;
    assert!(status.is_cut_off());
    assert!(reading.count() < 80_000, "the broker stood still too late to matter");
    broker.resume().expect("resume");
    (0..4).for_each(|index| topic.write(index, ["last"]));
    reading.until(|reading| reading.count() == 80_002).await;
    for index in [0, 1] {
        assert_eq!(reading.offsets(&topic.split(index)), (0..40_001).collect::<Vec<_>>());
    }
    reading.until_either(|_| !status.is_cut_off()).await;
    reading.source.resume(std::slice::from_ref(&resting)).expect("resume");
    reading.until(|reading| reading.count() == 80_003).await;
    assert_eq!((reading.offsets(&resting), reading.offsets(&paused)), (vec![0], vec![]));
    control.resume(std::slice::from_ref(&paused));
    reading.until(|reading| reading.count() == 80_004).await;
    assert_eq!(reading.offsets(&paused), [0]);
    control.commit(reading.positions.clone()).await.expect("commit");
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
