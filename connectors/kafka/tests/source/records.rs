//! What a record carries.

use levada_core::{Batch, Polled, TimestampKind};
use levada_kafka::source::{Headers, KafkaSourceConfig};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer};

use super::support::{PATIENCE, Reading, Topic, plain_producer};

type KeyAndValue<'b> = (Option<&'b [u8]>, Option<&'b [u8]>);

/// Reads the only batches of a topic and returns them.
async fn batches(topic: &Topic) -> Vec<Batch<()>> {
    batches_of(topic.bounded()).await
}

async fn batches_of(config: KafkaSourceConfig) -> Vec<Batch<()>> {
    let mut reading = Reading::open(config).await;
    let mut batches = Vec::new();
    loop {
        match reading.poll_raw().await {
            Polled::Batch => batches.push(reading.builder.finish().0),
            Polled::End => return batches,
            _ => {}
        }
    }
}

/// [SRC-22] null and empty are two things, for keys, values and header values; headers keep order and repetition.
#[tokio::test]
async fn a_record_carries_what_was_written() {
    let topic = Topic::new(1).await;
    let producer = plain_producer(&topic.bootstrap);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "trace", value: Some("1") })
        .insert(Header { key: "trace", value: None::<&str> })
        .insert(Header { key: "empty", value: Some("") });
    let base = || BaseRecord::<[u8], [u8]>::to(&topic.name).partition(0);
    producer.send(base().key(b"k").payload(b"v").headers(headers).timestamp(1_234_567)).expect("send");
    producer.send(base().key(b"tombstone")).expect("send");
    producer.send(base().key(b"").payload(b"")).expect("send");
    producer.send(base().payload(b"no key")).expect("send");
    producer.flush(PATIENCE).expect("flush");

    let batches = batches(&topic).await;
    let records: Vec<_> = batches
        .iter()
        .flat_map(|batch| batch.records().iter().map(move |record| (batch, &record.origin)))
        .collect();
    let parts: Vec<_> =
        records.iter().map(|(batch, origin)| (batch.key(origin), batch.value(origin))).collect();
    let expected: [KeyAndValue<'_>; 4] = [
        (Some(b"k"), Some(b"v")),
        (Some(b"tombstone"), None),
        (Some(b""), Some(b"")),
        (None, Some(b"no key")),
    ];
    assert_eq!(parts, expected);
    let (batch, first) = records[0];
    assert_eq!((first.timestamp.0, first.timestamp_kind), (1_234_567, TimestampKind::Create));
    assert_eq!(first.leader_epoch, Some(0));
    assert_eq!(batch.coordinates(first).to_string(), format!("{}-0@0", topic.name));
    let headers: Vec<_> = batch.headers(first).collect();
    let expected: [(&[u8], Option<&[u8]>); 3] =
        [(b"trace", Some(b"1")), (b"trace", None), (b"empty", Some(b""))];
    assert_eq!(headers, expected);
    assert_eq!(records[1].0.headers(records[1].1).count(), 0);
}

/// [SRC-22] a topic whose broker sets the time says so.
#[tokio::test]
async fn append_time_is_told_apart_from_create_time() {
    let topic = Topic::with(1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let producer = plain_producer(&topic.bootstrap);
    let record = BaseRecord::<[u8], [u8]>::to(&topic.name).partition(0).payload(b"v").timestamp(1);
    producer.send(record).expect("send");
    producer.flush(PATIENCE).expect("flush");
    let batches = batches(&topic).await;
    let origin = batches[0].records()[0].origin;
    assert_eq!(origin.timestamp_kind, TimestampKind::Append);
    assert!(origin.timestamp.0 > 1_000_000_000_000, "{}", origin.timestamp);
}

/// Headers cost time even where there are none; who wants none is not charged.
#[tokio::test]
async fn headers_are_left_out_if_nobody_wants_them() {
    let topic = Topic::new(1).await;
    let producer = plain_producer(&topic.bootstrap);
    let headers = OwnedHeaders::new().insert(Header { key: "trace", value: Some("1") });
    producer.send(BaseRecord::<[u8], [u8]>::to(&topic.name).payload(b"v").headers(headers)).expect("send");
    producer.flush(PATIENCE).expect("flush");

    let batches = batches_of(topic.bounded().headers(Headers::Skip)).await;
    let record = &batches[0].records()[0];
    assert_eq!(batches[0].value(&record.origin), Some(&b"v"[..]));
    assert_eq!(batches[0].headers(&record.origin).count(), 0);
}
