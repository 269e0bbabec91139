//! Where reading starts: resolved once, to numbers.

use std::collections::BTreeMap;

use levada_core::{Budget, Source, SourceContext, Timestamp};
use levada_kafka::{KafkaSource, KafkaSourceConfig, Otherwise, StartAt};
use levada_testcontainers::unique_name;

use super::support::{Reading, Topic};

/// Returns the start of each split of the topic.
async fn starts_of(config: KafkaSourceConfig) -> Vec<u64> {
    let mut reading = Reading::open(config).await;
    reading.until(|reading| reading.assignment.is_some()).await;
    reading.source.close().await;
    let assignment = reading.assignment.expect("assigned");
    assignment.streams[0].splits.iter().map(|split| split.start.next).collect()
}

async fn refusal_of(config: KafkaSourceConfig) -> String {
    let mut source = KafkaSource::new(config).expect("a source");
    let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(1 << 20) };
    let error = source.open(ctx).await.expect_err("refused");
    source.close().await;
    error.to_string()
}

/// [SRC-12] [SRC-14] the first record of that time or later; where there is none, the end.
#[tokio::test]
async fn a_start_by_time_is_the_first_record_at_or_after_it_or_the_end() {
    let topic = Topic::new(3).await;
    topic.write_at(0, [100, 200, 300]);
    topic.write_at(1, [100]);
    let config = |time| topic.config().start_at(StartAt::Timestamp(Timestamp(time)));
    assert_eq!(starts_of(config(200)).await, [1, 1, 0]);
    assert_eq!(starts_of(config(201)).await, [2, 1, 0]);
    assert_eq!(starts_of(config(-5)).await, [0, 0, 0]);
    let mut reading = Reading::open(config(1_000)).await;
    topic.write_at(1, [1_000, 1_001]); // too late to move the start, and read
    reading.until(|reading| reading.count() == 2).await;
    assert_eq!(reading.offsets(&topic.split(1)), [1, 2]);
    reading.source.close().await;
}

/// [SRC-12] [SRC-14] times are looked up among all records, also behind an open transaction: a start at its first record would
/// read earlier ones.
#[tokio::test]
async fn a_start_by_time_lies_behind_an_open_transaction_if_the_record_does() {
    let topic = Topic::new(1).await;
    topic.write_at(0, [100]);
    let open = topic.transaction().write_at(0, [50]); // 1
    topic.write_at(0, [200, 50]); // 2, 3
    let config = topic.config().start_at(StartAt::Timestamp(Timestamp(150)));
    assert_eq!(starts_of(config.clone()).await, [2]);
    let mut reading = Reading::open(config).await;
    reading.until(|reading| reading.assignment.is_some()).await;
    open.commit();
    reading.until(|reading| reading.count() == 2).await;
    assert_eq!(reading.offsets(&topic.split(0)), [2, 3]);
    reading.source.close().await;
}

/// [SRC-12] of the group that is named; with what was not committed.
#[tokio::test]
async fn a_committed_start_is_that_of_the_group_or_falls_back() {
    let topic = Topic::new(2).await;
    topic.write_numbered(0, 10, 4);
    topic.write_numbered(1, 20, 4);
    let group = unique_name("group");
    let config = |otherwise| topic.config().group_id(&group).start_at(StartAt::Committed { otherwise });
    let message = refusal_of(config(Otherwise::Fail)).await;
    assert!(message.contains("committed") && message.contains(&topic.name), "{message}");
    topic.commit(&group, &[(0, 7)]);
    let message = refusal_of(config(Otherwise::Fail)).await;
    assert!(message.contains(&format!("{}-1", topic.name)), "{message}");
    assert_eq!(starts_of(config(Otherwise::Earliest)).await, [7, 0]);
    assert_eq!(starts_of(config(Otherwise::Latest)).await, [7, 20]);
}

/// [SRC-12] explicit, then committed, then policy.
#[tokio::test]
async fn explicit_offsets_fall_back_to_committed_ones_and_then_to_the_policy() {
    let topic = Topic::new(3).await;
    for partition in 0..3 {
        topic.write_numbered(partition, 10, 4);
    }
    let group = unique_name("group");
    topic.commit(&group, &[(0, 2), (1, 3)]);
    let config = |named| {
        let start = StartAt::Offsets { offsets: BTreeMap::from([(named, 5)]), otherwise: Otherwise::Latest };
        topic.config().group_id(&group).start_at(start)
    };
    assert_eq!(starts_of(config(topic.split(0))).await, [5, 3, 10]);
    let message = refusal_of(config(topic.split(3))).await;
    assert!(message.contains(&topic.split(3).to_string()), "{message}");
}
