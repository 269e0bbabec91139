//! Messages that no broker takes.

use levada_core::ErrorClass;
use levada_core::template::IdempotentSink;
use levada_kafka::sink::producing::{AsRead, AtLeastOnceSink, Message, ProduceError, Producer};

use super::support::{Topic, batch, chain, context, now};

async fn opened(topic: &Topic) -> AtLeastOnceSink<(), AsRead> {
    // The client's default lets a missing topic appear for 30 s.
    let config = topic.config().property("topic.metadata.propagation.max.ms", "500");
    let mut sink = AtLeastOnceSink::new(config, AsRead::to(&topic.name)).expect("it works");
    sink.open(context()).await.expect("open");
    sink
}

/// [KSK-01] at least once: flush and error check before the barrier passes; of the three guarantees, the one by position comes later.
/// [KSK-03] sent = acked + failed; the barrier fails although all reports are in, and the error names topic, partition and
/// the record at fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_the_broker_finds_too_large_fails_the_flush() {
    let topic = Topic::with(1, &[("max.message.bytes", "2000")]).await;
    let mut sink = opened(&topic).await;
    sink.upsert(batch(0, [&b"small"[..]; 10]), &now()).await.expect("write");
    sink.flush().await.expect("flush");
    sink.upsert(batch(10, [&[b'x'; 5000][..]]), &now()).await.expect("only the broker knows");
    let failed = sink.flush().await.expect_err("too large");
    assert_eq!(failed.class, ErrorClass::BadRecord);
    let said = chain(&failed);
    assert!(said.starts_with("record flights-3@10: "), "{said}");
    assert!(said.contains(&format!("topic {}, partition 0", topic.name)), "{said}");
    assert!(said.contains("MessageSizeTooLarge"), "{said}");
    let producer = sink.producer().expect("open");
    assert_eq!((producer.sent(), producer.delivered().messages, producer.outstanding()), (11, 10, 0));
    assert_eq!(producer.failures().0, 1);
    // It stays so: neither a later write nor a later flush is told that all is well.
    sink.upsert(batch(11, [&b"small"[..]]), &now()).await.expect_err("the next write");
    sink.flush().await.expect_err("the next flush");
    sink.close().await;
}

/// [KSK-03] what the client itself refuses is counted like what brokers refuse.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_that_the_client_finds_too_large_is_counted_as_failed() {
    let topic = Topic::new(1).await;
    let config = topic.config().property("message.max.bytes", "10000");
    let producer = Producer::open(&config, "large").await.expect("open");
    let refused = producer.send(&Message::to(&topic.name).value(&[b'x'; 20_000]), None).await;
    assert!(matches!(refused, Err(ProduceError::NotDelivered { .. })), "{refused:?}");
    producer.flush().await.expect_err("one is missing");
    assert_eq!((producer.sent(), producer.failures().0, producer.in_flight_bytes()), (1, 1, 0));
}

/// [KSK-03] [KSK-04] a topic that is deleted under way: seen while nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_of_the_topic_is_seen_while_idle() {
    let topic = Topic::new(1).await;
    let mut sink = opened(&topic).await;
    sink.upsert(batch(0, [&b"a"[..]]), &now()).await.expect("write");
    sink.flush().await.expect("flush");
    topic.delete().await;
    sink.upsert(batch(1, [&b"b"[..]]), &now()).await.expect("handed over");
    let producer = sink.producer().expect("open");
    let failure = tokio::time::timeout(super::support::PATIENCE, producer.failed()).await.expect("in time");
    let said = chain(&failure);
    assert!(said.contains("flights-3@1") && said.contains(&topic.name), "{said}");
    assert_eq!(producer.sent(), producer.delivered().messages + producer.failures().0);
    sink.flush().await.expect_err("the barrier");
    sink.close().await;
    // What the client makes of a leader that is gone under its hands varies; whoever writes again learns the reason.
    let mut sink = opened(&topic).await;
    sink.upsert(batch(1, [&b"b"[..]]), &now()).await.expect("handed over");
    assert_eq!(sink.flush().await.expect_err("the barrier").class, ErrorClass::BadRecord);
    sink.close().await;
}

/// [KSK-03] a topic that never was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_for_an_unknown_topic_fails() {
    let topic = Topic::new(1).await;
    let missing = Topic { bootstrap: topic.bootstrap.clone(), name: format!("{}-missing", topic.name) };
    let mut sink = opened(&missing).await;
    sink.upsert(batch(0, [&b"a"[..]]), &now()).await.expect("handed over");
    let said = chain(&sink.flush().await.expect_err("unknown"));
    assert!(said.contains("flights-3@0") && said.contains(&missing.name), "{said}");
    sink.close().await;
    // Where the topic is named beforehand, nothing is opened.
    let config = missing.config().topics([&missing.name]);
    let refused = Producer::open(&config, "missing").await.expect_err("unknown");
    assert!(matches!(refused, ProduceError::Topic { .. }), "{refused:?}");
}

/// [KSK-03] a partition that the topic does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_for_a_partition_that_is_not_there_fails() {
    let topic = Topic::new(2).await;
    let producer = Producer::open(&topic.config().topics([&topic.name]), "partition").await.expect("open");
    let sent = producer.send(&Message::to(&topic.name).partition(2), None).await;
    let failed = match sent {
        Ok(()) => producer.flush().await.expect_err("no such partition"),
        Err(error) => error,
    };
    assert!(chain(&failed).contains("partition 2"), "{}", chain(&failed));
    assert_eq!(producer.failures().0, 1);
}
