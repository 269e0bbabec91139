//! What is written is what is read.

use std::process::Stdio;

use levada_core::batch::RawRecord;
use levada_core::template::IdempotentSink;
use levada_core::{BatchBuilder, BoxError, ErrorClass, SplitId, Timestamp, TimestampKind};
use levada_kafka::sink::producing::{AsRead, AtLeastOnceSink, InBatch, Message, Outgoing, Serialise};
use levada_testcontainers::Kafka;

use super::support::{Topic, batch, chain, context, now};

type Headers<'h> = Vec<(&'h [u8], Option<&'h [u8]>)>;
type KeyAndValue = (Option<&'static [u8]>, Option<&'static [u8]>);

const KINDS: [KeyAndValue; 4] =
    [(Some(b"k"), Some(b"v")), (None, Some(b"")), (Some(b""), None), (None, None)];

async fn written<S: Serialise<()>>(topic: &Topic, serialise: S, batch: levada_core::Batch<()>) {
    let mut sink = AtLeastOnceSink::new(topic.config().topics([&topic.name]), serialise).expect("it works");
    sink.open(context()).await.expect("open");
    sink.upsert(batch, &now()).await.expect("write");
    sink.flush().await.expect("flush");
    sink.close().await;
}

fn of_all_kinds() -> levada_core::Batch<()> {
    let headers: Headers<'_> = vec![(b"a", Some(b"1")), (b"a", None), (b"z", Some(b""))];
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("flights", 0));
    for (offset, (key, value)) in (0..).zip(KINDS) {
        let timestamp = Timestamp(1_700_000_000_000 + offset as i64);
        let raw = RawRecord {
            offset,
            timestamp,
            timestamp_kind: TimestampKind::Create,
            key,
            value,
            leader_epoch: None,
        };
        let headers = if offset == 0 { headers.clone() } else { Headers::new() };
        builder.push_with_headers(split, raw, headers);
    }
    builder.finish().0
}

/// [KSK-02] key, value, headers and timestamp; null keys and tombstones pass, and are not empty ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_come_back_as_they_were_written() {
    let topic = Topic::new(1).await;
    written(&topic, AsRead::to(&topic.name), of_all_kinds()).await;
    let read = topic.read();
    let parts: Vec<_> = read.iter().map(|read| (read.key.as_deref(), read.value.as_deref())).collect();
    assert_eq!(parts, KINDS);
    let times: Vec<_> = read.iter().map(|read| read.timestamp).collect();
    assert_eq!(times, (0..4).map(|offset| Some(1_700_000_000_000 + offset)).collect::<Vec<_>>());
    let header = |name: &str, value: Option<&[u8]>| (name.to_owned(), value.map(<[u8]>::to_vec));
    assert_eq!(read[0].headers, [header("a", Some(b"1")), header("a", None), header("z", Some(b""))]);
    assert!(read[1..].iter().all(|read| read.headers.is_empty()));
}

/// [KSK-02] as Kafka's own console consumer reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn console_consumer_reads_nulls_headers_and_timestamps() {
    let topic = Topic::new(1).await;
    written(&topic, AsRead::to(&topic.name), of_all_kinds()).await;
    let mut arguments =
        vec!["--bootstrap-server", &topic.bootstrap, "--topic", &topic.name, "--from-beginning"];
    arguments.extend(["--max-messages", "4"]);
    for property in ["print.key=true", "print.headers=true", "print.timestamp=true", "null.literal=NULL"] {
        arguments.extend(["--formatter-property", property]);
    }
    let kafka = Kafka::shared().expect("a broker");
    let mut consumer =
        kafka.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments).expect("the tool");
    let output = consumer.stderr(Stdio::inherit()).output().expect("run it");
    let lines = [
        "CreateTime:1700000000000\ta:1,a:NULL,z:\tk\tv",
        "CreateTime:1700000000001\tNO_HEADERS\tNULL\t",
        "CreateTime:1700000000002\tNO_HEADERS\t\tNULL",
        "CreateTime:1700000000003\tNO_HEADERS\tNULL\tNULL",
    ];
    assert_eq!(String::from_utf8(output.stdout).expect("text").lines().collect::<Vec<_>>(), lines);
}

/// [KSK-02] a record goes where its serialiser says: nowhere, or to several topics and partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serialiser_chooses_topics_and_partitions_and_skips() {
    let (delays, planes) = (Topic::new(2).await, Topic::new(1).await);
    let names = (delays.name.clone(), planes.name.clone());
    let serialise = move |record: InBatch<'_, ()>, out: &mut Outgoing| -> Result<(), BoxError> {
        match record.value().unwrap_or_default() {
            b"skip" => {}
            b"both" => {
                out.push(&Message::to(&names.0).partition(1).value(b"both"));
                out.push(&Message::to(&names.1).key(b"k").value(b"both"));
            }
            value => out.push(&Message::to(&names.0).partition(0).value(value)),
        }
        Ok(())
    };
    written(&delays, serialise, batch(0, [&b"one"[..], b"skip", b"both", b"two"])).await;
    let texts = |topic: &Topic| {
        let read = topic.read();
        read.iter().map(|read| (read.partition, read.text().to_owned())).collect::<Vec<_>>()
    };
    let delayed = texts(&delays);
    assert_eq!(delayed, [(0, "one".to_owned()), (0, "two".to_owned()), (1, "both".to_owned())]);
    assert_eq!(texts(&planes), [(0, "both".to_owned())]);
}

/// [KSK-02] what cannot be serialised, or not be sent as it is, is the fault of its record, which is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_that_cannot_be_serialised_is_refused_by_its_coordinates() {
    let topic = Topic::new(1).await;
    let name = topic.name.clone();
    let serialise = move |record: InBatch<'_, ()>, out: &mut Outgoing| -> Result<(), BoxError> {
        match record.value().unwrap_or_default() {
            b"bad" => return Err("no such airport".into()),
            b"1970" => out.push(&Message::to(&name).value(b"x").timestamp(Timestamp(0))),
            value => out.push(&Message::to(&name).value(value)),
        }
        Ok(())
    };
    let mut sink = AtLeastOnceSink::new(topic.config(), serialise).expect("it works");
    sink.open(context()).await.expect("open");
    let refused = sink.upsert(batch(40, [&b"good"[..], b"bad"]), &now()).await.expect_err("refused");
    assert_eq!(refused.class, ErrorClass::BadRecord);
    assert_eq!(chain(&refused), "record flights-3@41: the serialiser refuses the record: no such airport");
    let refused = sink.upsert(batch(50, [&b"1970"[..]]), &now()).await.expect_err("refused");
    assert_eq!(refused.class, ErrorClass::BadRecord);
    assert!(chain(&refused).starts_with("record flights-3@50: "), "{}", chain(&refused));
    sink.close().await;
}
