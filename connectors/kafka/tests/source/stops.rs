//! Where reading ends, when told by offset, time or group: exactly there.

use std::collections::BTreeMap;

use levada_core::{Budget, Source, SourceContext, Timestamp};
use levada_kafka::{KafkaSource, KafkaSourceConfig, StopAt};
use levada_testcontainers::unique_name;

use super::bounded::delete_before;
use super::support::{Reading, Topic};

fn until(topic: &Topic, stops: &[u64]) -> KafkaSourceConfig {
    let split = |(index, stop): (usize, &u64)| (topic.split(index as u32), *stop);
    topic.config().stop_at(StopAt::Offsets(stops.iter().enumerate().map(split).collect()))
}

/// [SRC-15] exclusive, in each partition its own; records from the stop on are dropped.
#[tokio::test]
async fn a_read_ends_at_the_offsets_given() {
    let topic = Topic::new(3).await;
    topic.write_numbered(0, 10, 4);
    topic.write_numbered(1, 10, 4);
    let reading = Reading::open(until(&topic, &[4, 10, 0])).await.read_to_end().await;
    assert_eq!(reading.offsets(&topic.split(0)), [0, 1, 2, 3]);
    assert_eq!(reading.offsets(&topic.split(1)).len(), 10);
    let ends: Vec<u64> = reading.ends.values().copied().collect();
    assert_eq!(ends, [4, 10, 0]);
}

/// [SRC-17] stops that lie ahead: the read waits for what is written later, and ends there.
#[tokio::test]
async fn a_read_with_stops_ahead_goes_on_until_all_are_reached() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 3, 4);
    topic.write_numbered(1, 3, 4);
    let mut reading = Reading::open(until(&topic, &[3, 5])).await;
    reading.until(|reading| reading.count() == 6 && reading.ends.len() == 1).await;
    assert!(!reading.is_over);
    topic.write_numbered(1, 4, 4);
    let reading = reading.read_to_end().await;
    assert_eq!(reading.offsets(&topic.split(1)), [0, 1, 2, 3, 4]);
    assert_eq!(reading.ends[&topic.split(1)], 5);
}

/// [SRC-15] [SRC-11] a stop among markers and aborted data, where no record tells that it was passed.
#[tokio::test]
async fn a_stop_among_markers_and_aborted_data_is_the_exact_end() {
    let topic = Topic::new(1).await;
    topic.transaction().write(0, ["a"]).commit(); // 0, marker at 1
    topic.transaction().write(0, ["lost", "lost"]).abort(); // 2, 3, marker at 4
    for stop in 1..=5 {
        let reading = Reading::open(until(&topic, &[stop])).await.read_to_end().await;
        let split = topic.split(0);
        assert_eq!((reading.values(&split), reading.ends[&split]), (vec!["a"], stop));
        assert_eq!(reading.position(&split), Some(stop));
    }
}

/// [SRC-15] what was to be read is gone already: the split ends where it would start.
#[tokio::test]
async fn a_stop_in_a_deleted_prefix_ends_at_once() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 10, 4);
    delete_before(&topic, &[(0, 7)]).await;
    let reading = Reading::open(until(&topic, &[5])).await.read_to_end().await;
    assert_eq!((reading.count(), reading.ends[&topic.split(0)]), (0, 7));
}

/// [SRC-15] [SRC-14]
#[tokio::test]
async fn a_read_ends_before_the_first_record_of_a_time_or_at_the_end() {
    let topic = Topic::new(3).await;
    topic.write_at(0, [100, 200, 300]);
    topic.write_at(1, [100, 150]);
    let config = topic.config().stop_at(StopAt::Timestamp(Timestamp(200)));
    let reading = Reading::open(config).await;
    topic.write_at(1, [160]); // after the start: beyond the end
    let reading = reading.read_to_end().await;
    assert_eq!(reading.values(&topic.split(0)), ["100"]);
    assert_eq!(reading.values(&topic.split(1)), ["100", "150"]);
    assert_eq!(reading.ends[&topic.split(2)], 0);
}

/// [SRC-15]
#[tokio::test]
async fn a_read_ends_where_the_group_has_committed_to_be() {
    let topic = Topic::new(1).await;
    topic.write_numbered(0, 10, 4);
    let group = unique_name("group");
    let config = topic.config().group_id(&group).stop_at(StopAt::Committed);
    let mut source = KafkaSource::new(config.clone()).expect("a source");
    let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(1 << 20) };
    let message = source.open(ctx.clone()).await.expect_err("nothing is committed").to_string();
    assert!(message.contains(&topic.split(0).to_string()), "{message}");
    topic.commit(&group, &[(0, 6)]);
    let reading = Reading::open(config).await.read_to_end().await;
    assert_eq!(reading.offsets(&topic.split(0)), [0, 1, 2, 3, 4, 5]);
    let mut source =
        KafkaSource::new(topic.config().stop_at(StopAt::Offsets(BTreeMap::new()))).expect("a source");
    let message = source.open(ctx).await.expect_err("no stop").to_string();
    assert!(message.contains(&topic.split(0).to_string()), "{message}");
}

/// [SRC-16] a stop beyond the last stable offset. It can be seen that the read waits for a transaction, and whose that is, and the
/// read ends at the stop once that has ended.
#[tokio::test]
async fn a_stop_behind_an_open_transaction_is_waited_for_and_that_is_told() {
    let ahead = StopAt::Timestamp(Timestamp(i64::MAX));
    for stop in [StopAt::Offsets(BTreeMap::new()), ahead] {
        let topic = Topic::new(1).await;
        topic.write(0, ["a"]);
        let open = topic.transaction().write(0, ["open", "open"]);
        topic.write(0, ["behind"]); // 3
        let config = match stop {
            StopAt::Offsets(_) => until(&topic, &[4]),
            stop => topic.config().stop_at(stop),
        };
        let mut reading = Reading::open(config).await;
        let status = reading.source.status();
        let waiting = || status.splits().into_iter().find(|split| split.behind_transaction.is_some());
        reading.until_either(|_| waiting().is_some()).await;
        let standing = waiting().expect("it waits");
        assert_eq!((standing.position, standing.stop), (1, Some(4)));
        assert_eq!((standing.last_stable_offset, standing.high_watermark), (Some(1), Some(4)));
        assert!(!reading.is_over && reading.count() == 1);
        reading.until_either(|_| waiting().is_some_and(|split| split.transaction.is_some())).await;
        assert_eq!(waiting().and_then(|split| split.transaction), Some(open.told()));
        open.commit();
        let reading = reading.read_to_end().await;
        assert_eq!(reading.values(&topic.split(0)), ["a", "open", "open", "behind"]);
        assert_eq!(reading.ends[&topic.split(0)], 4);
    }
}
