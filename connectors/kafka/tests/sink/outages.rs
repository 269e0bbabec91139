//! The broker goes away and comes back.

use std::time::Duration;

use levada_core::ErrorClass;
use levada_core::template::IdempotentSink;
use levada_kafka::sink::producing::{
    AsRead, AtLeastOnceSink, KafkaSinkConfig, Message, ProduceError, Producer,
};
use levada_testcontainers::Kafka;

use super::support::{PATIENCE, Topic, batch, chain, context, now};

/// [KSK-26] [KSK-03] a broker that stands still for longer than the client may try: the barrier fails with a clear error, and
/// whoever opens anew when it is back loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standstill_beyond_the_delivery_timeout_fails_the_flush_and_a_replay_succeeds() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let config = topic.config().delivery_timeout(Duration::from_secs(5));
    let mut sink = AtLeastOnceSink::new(config, AsRead::to(&topic.name)).expect("it works");
    sink.open(context()).await.expect("open");
    sink.upsert(batch(0, [&b"0"[..]]), &now()).await.expect("write");
    sink.flush().await.expect("flush");
    broker.pause().expect("pause");
    sink.upsert(batch(1, [&b"1"[..], b"2"]), &now()).await.expect("handed over");
    let failed = tokio::time::timeout(PATIENCE, sink.flush()).await.expect("bounded").expect_err("away");
    assert_eq!(failed.class, ErrorClass::Reconnect);
    let said = chain(&failed);
    assert!(said.contains("flights-3@1") && said.contains("2 of 3 messages failed"), "{said}");
    let producer = sink.producer().expect("open");
    assert_eq!((producer.delivered().messages, producer.outstanding()), (1, 0));
    sink.close().await;
    broker.resume().expect("resume");

    // A broker that stood still is fenced for a moment, and names no brokers. Naming the topic makes opening wait that out.
    let config = topic.config().topics([&topic.name]);
    let mut sink = AtLeastOnceSink::new(config, AsRead::to(&topic.name)).expect("it works");
    sink.open(context()).await.expect("open again");
    sink.upsert(batch(1, [&b"1"[..], b"2"]), &now()).await.expect("write again");
    sink.flush().await.expect("flush");
    sink.close().await;
    let read = topic.read();
    let values: std::collections::BTreeSet<_> = read.iter().map(super::support::Read::text).collect();
    assert_eq!(values, ["0", "1", "2"].into(), "at least once");
}

/// [KSK-26] a shorter standstill is waited out, and doubles nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_for_a_broker_that_is_restarted() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let producer = Producer::open(&topic.config(), "waits").await.expect("open");
    let texts: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    for (number, text) in texts.iter().enumerate() {
        if number == 50 {
            producer.flush().await.expect("flush");
            broker.kill();
        }
        producer.send(&Message::to(&topic.name).value(text.as_bytes()), None).await.expect("send");
    }
    broker.restart().expect("restart");
    producer.flush().await.expect("flush");
    let read = topic.read();
    assert_eq!(read.iter().map(super::support::Read::text).collect::<Vec<_>>(), texts);
}

/// [KSK-26] opening is bounded, and says who was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_fails_in_time_when_nobody_answers() {
    // Bound and let go: nobody listens there.
    let address =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port");
    let config = KafkaSinkConfig::new(address.to_string()).open_within(Duration::from_secs(1));
    let failed = Producer::open(&config, "nobody").await.expect_err("nobody answers");
    assert_eq!(failed.class(), ErrorClass::Reconnect);
    let said = chain(&failed);
    assert!(matches!(failed, ProduceError::Away { .. }), "{said}");
    assert!(said.contains(&address.to_string()) && said.contains("connecting"), "{said}");
}

/// [KSK-06] ending does not wait for a broker that stands still, and neither does dropping.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_while_the_broker_stands_still() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let producer = Producer::open(&topic.config(), "closes").await.expect("open");
    broker.pause().expect("pause");
    producer.send(&Message::to(&topic.name).value(b"v"), None).await.expect("send");
    producer.close(PATIENCE).await.expect("closed in time");
    broker.resume().expect("resume");
}
