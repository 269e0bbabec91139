//! How splits stand is told in line with their records.

use std::time::Duration;

use levada_core::Source as _;
use levada_core::time::{Pause, SplitEvent};
use levada_kafka::BatchBounds;
use levada_testcontainers::Kafka;

use super::support::{PATIENCE, Reading, Topic};

/// [TIM-05] [SRC-11] the end comes behind the records, at the position past markers and aborted data; again when it moves on.
#[tokio::test]
async fn an_end_is_told_behind_the_records_at_the_position_past_markers() {
    let topic = Topic::new(2).await;
    let (split, empty) = (topic.split(0), topic.split(1));
    topic.transaction().write(0, ["a", "b"]).commit(); // 0, 1, marker at 2
    topic.transaction().write(0, ["lost"]).abort(); // 3, marker at 4
    let end = |position| SplitEvent::EndOfPartition { position };
    let mut reading = Reading::open(topic.config()).await;
    reading.until(|reading| !reading.told(&split).is_empty() && !reading.told(&empty).is_empty()).await;
    assert_eq!(reading.news.iter().find(|(_, of, _)| *of == split), Some(&(2, split.clone(), end(5))));
    assert_eq!(reading.told(&empty), [end(0)]);
    topic.write(0, ["c"]);
    reading.until(|reading| reading.told(&split).contains(&end(6))).await;
    assert_eq!((reading.values(&split).last(), reading.count()), (Some(&"c"), 3));
    reading.source.close().await;
}

/// [TIM-06] an open transaction is in front: the end that is told is where reading stands, not where the partition ends.
#[tokio::test]
async fn the_end_before_an_open_transaction_is_the_last_stable_offset() {
    let topic = Topic::new(1).await;
    topic.write(0, ["a"]);
    let open = topic.transaction().write(0, ["open"]);
    let mut reading = Reading::open(topic.config()).await;
    let split = topic.split(0);
    reading.until(|reading| !reading.news.is_empty()).await;
    assert_eq!(reading.told(&split), [SplitEvent::EndOfPartition { position: 1 }]);
    open.commit();
    reading.until(|reading| reading.told(&split).len() > 1).await;
    assert_eq!(reading.told(&split)[1], SplitEvent::EndOfPartition { position: 3 });
    reading.source.close().await;
}

/// [TIM-06] nobody takes the records: every split is paused by back-pressure, and is told to go on before it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_held_back_are_told_to_be_paused_and_to_go_on() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 30_000, 100);
    topic.write_numbered(1, 30_000, 100);
    let small = BatchBounds { records: 500, bytes: 100 << 10, age: Duration::from_millis(5) };
    let mut reading = Reading::open(topic.config().batch_bounds(small)).await;
    reading.poll().await.expect("assigned");
    let status = reading.source.status();
    levada_testcontainers::wait_until(PATIENCE, "all splits paused", || status.is_held_back())
        .expect("in time");
    reading.until(|reading| reading.count() == 60_000).await;
    let (paused, resumed) =
        (SplitEvent::Paused(Pause::BackPressure), SplitEvent::Resumed(Pause::BackPressure));
    for split in [topic.split(0), topic.split(1)] {
        reading.until(|reading| reading.told(&split).contains(&resumed)).await;
        let told = reading.told(&split);
        let place = |event| told.iter().position(|&told| told == event);
        assert!(place(paused) < place(resumed) && place(paused).is_some(), "{told:?}");
        // A pause throws away what the client holds, also an end that nobody has seen: it is told again.
        let end = SplitEvent::EndOfPartition { position: 30_000 };
        reading.until(|reading| reading.told(&split).last() == Some(&end)).await;
    }
    reading.source.close().await;
}

/// [TIM-06] [SRC-26]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_no_broker_can_be_reached_is_told_of_every_split() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 2, &[]).await;
    let mut reading = Reading::open(topic.config()).await;
    let splits = [topic.split(0), topic.split(1)];
    reading.until(|reading| splits.iter().all(|split| !reading.told(split).is_empty())).await;
    broker.kill();
    reading.until(|reading| splits.iter().all(|of| reading.told(of).contains(&SplitEvent::BrokerAway))).await;
    reading.source.close().await;
}
