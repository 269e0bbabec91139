//! Opening: topics, assignment and starts.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_core::{Budget, ErrorChain, ErrorClass, Polled, Position, Source, SourceContext};
use levada_kafka::{KafkaSource, KafkaSourceConfig, StartAt};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::support::{PATIENCE, Reading, Topic};

fn alone() -> SourceContext {
    SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(1 << 20) }
}

/// [SRC-02] and the topic is not created by asking for it.
#[tokio::test]
async fn a_missing_topic_is_an_error_that_names_it() {
    let there = Topic::new(1).await;
    let missing = unique_name("missing");
    let config = KafkaSourceConfig::new(&there.bootstrap, [&there.name, &missing]);
    for _ in 0..2 {
        let mut source = KafkaSource::new(config.clone()).expect("a source");
        let error = source.open(alone()).await.expect_err("the topic is missing");
        assert!(error.to_string().contains(&missing), "{error}");
        source.close().await;
    }
    let consumer: BaseConsumer =
        rdkafka::ClientConfig::new().set("bootstrap.servers", &there.bootstrap).create().expect("a consumer");
    let metadata = consumer.fetch_metadata(None, PATIENCE).expect("metadata");
    assert!(metadata.topics().iter().all(|topic| topic.name() != missing));
}

/// [SRC-26] nobody listens: opening ends at its deadline and says why.
#[tokio::test]
async fn opening_without_a_broker_fails_at_its_deadline() {
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let config = KafkaSourceConfig::new(nobody.to_string(), ["flights"]).open_within(Duration::from_secs(3));
    let mut source = KafkaSource::new(config).expect("a source");
    let error =
        tokio::time::timeout(PATIENCE, source.open(alone())).await.expect("in time").expect_err("nobody");
    let chain = ErrorChain(&error).to_string();
    assert!(chain.contains(&nobody.to_string()) && chain.contains("3s"), "{chain}");
    assert!(chain.to_lowercase().contains("connect"), "{chain}");
    assert!(source.status().errors() > 0);
}

/// [SRC-26] refused credentials are told at once, not after the deadline, and without the password.
#[tokio::test]
async fn refused_credentials_are_told_at_once() {
    let broker = Kafka::shared().expect("a broker");
    let config = KafkaSourceConfig::new(broker.bootstrap(), ["flights"])
        .property("security.protocol", "sasl_plaintext")
        .property("sasl.mechanism", "PLAIN")
        .property("sasl.username", "nobody")
        .property("sasl.password", "hunter2")
        .open_within(PATIENCE * 2);
    let mut source = KafkaSource::new(config).expect("a source");
    let error =
        tokio::time::timeout(PATIENCE, source.open(alone())).await.expect("at once").expect_err("refused");
    let chain = ErrorChain(&error).to_string();
    assert!(chain.contains("credentials") && !chain.contains("hunter2"), "{chain}");
    assert_eq!(error.class, ErrorClass::Fatal);
}

/// [SRC-03] each partition has one owner; who has none ends a bounded read at once.
#[tokio::test]
async fn partitions_are_spread_and_a_subtask_without_any_ends_at_once() {
    let topic = Topic::new(2).await;
    topic.write(0, ["a"]);
    topic.write(1, ["b"]);
    let mut seen = BTreeSet::new();
    let mut without = 0;
    for subtask in 0..4 {
        let reading = Reading::open_as(topic.bounded(), subtask, 4).await.read_to_end().await;
        without += usize::from(reading.assignment.is_none());
        for split in reading.records.keys() {
            assert!(seen.insert(split.clone()), "{split} was read twice");
        }
    }
    assert_eq!((seen.len(), without), (2, 2));
}

/// [SRC-03] an unbounded read without a split is idle, not stuck and not over.
#[tokio::test]
async fn an_unbounded_subtask_without_splits_is_idle() {
    let topic = Topic::new(1).await;
    let mut told = Vec::new();
    for subtask in 0..2 {
        let mut reading = Reading::open_as(topic.config(), subtask, 2).await;
        told.push(reading.poll().await.expect("poll"));
        reading.source.close().await;
    }
    assert!(told.contains(&Polled::Idle), "{told:?}");
    assert!(told.iter().any(|polled| matches!(polled, Polled::Assigned(_))), "{told:?}");
}

/// [SRC-13] [SRC-12] one subtask is told the start of every split of its stream, also of those it does not own, as
/// numbers, and the earliest position of each.
#[tokio::test]
async fn starts_are_resolved_once_for_all_splits_of_a_stream() {
    let topic = Topic::new(4).await;
    for partition in 0..4 {
        topic.write_numbered(partition, 10 + partition as usize, 4);
    }
    let config = topic.config().start_at(StartAt::Latest);
    let mut reading = Reading::open_as(config, 0, 4).await;
    topic.write_numbered(0, 5, 4); // too late to count
    reading.until(|reading| reading.assignment.is_some()).await;
    let assignment = reading.assignment.as_ref().expect("assigned");
    assert_eq!(assignment.splits.len(), 1);
    let stream = &assignment.streams[0];
    let starts: Vec<_> = stream.splits.iter().map(|split| (split.index, split.start.next)).collect();
    assert_eq!(starts, [(0, 10), (1, 11), (2, 12), (3, 13)]);
    assert!(stream.splits.iter().all(|split| split.earliest == Position::at(0)));
}

/// [SRC-07] in part: a stream is named by cluster and topic id, so that a topic created anew is another stream. That a
/// store refuses the old positions is the store's part.
#[tokio::test]
async fn a_topic_created_anew_is_another_stream() {
    let topic = Topic::new(1).await;
    let other = Topic::new(1).await;
    let mut ids = Vec::new();
    for topic in [&topic, &topic, &other] {
        let mut reading = Reading::open(topic.config()).await;
        reading.until(|reading| reading.assignment.is_some()).await;
        ids.push(reading.stream().1);
    }
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    let (cluster, topic_id) = ids[0].0.split_once('/').expect("two parts");
    assert!(cluster.len() == 22 && topic_id.len() == 22, "{}", ids[0]);
}

/// Dropping the future of an opening, or a source that is open, ends its thread.
#[tokio::test]
async fn a_dropped_opening_leaves_nothing_behind() {
    let broker = Kafka::shared().expect("a broker");
    let config = KafkaSourceConfig::new(broker.bootstrap(), ["flights"]);
    let mut source = KafkaSource::new(config).expect("a source");
    let opening = tokio::time::timeout(Duration::ZERO, source.open(alone())).await;
    assert!(opening.is_err());
    tokio::time::timeout(PATIENCE, source.close()).await.expect("the thread ends");
}
