//! Keys land where other producers put them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use levada_kafka::sink::producing::{Message, Producer};
use levada_testcontainers::Kafka;

use super::support::Topic;

/// Writes keys with Kafka's own console producer, each also as its value.
fn write_by_java(topic: &Topic, keys: &[String]) {
    let mut arguments = vec!["--bootstrap-server", &topic.bootstrap, "--topic", &topic.name];
    arguments.extend(["--reader-property", "parse.key=true", "--reader-property", "key.separator=|"]);
    let kafka = Kafka::shared().expect("a broker");
    let mut producer = kafka.tool("org.apache.kafka.tools.ConsoleProducer", arguments).expect("the tool");
    let mut running = producer.stdin(Stdio::piped()).spawn().expect("run it");
    let mut input = running.stdin.take().expect("its input");
    for key in keys {
        writeln!(input, "{key}|{key}").expect("a line");
    }
    drop(input);
    assert!(running.wait().expect("its end").success());
}

fn by_key(topic: &Topic) -> BTreeMap<Vec<u8>, i32> {
    topic.read().into_iter().map(|read| (read.key.expect("a key"), read.partition)).collect()
}

/// [KSK-05]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_land_in_the_partitions_where_javas_producer_puts_them() {
    // Of all lengths modulo four, which the hash treats apart; with bytes above 127; and the empty one.
    let mut keys: Vec<String> = (0..200).map(|number| format!("{number:x}").repeat(number % 5 + 1)).collect();
    keys.extend(["".to_owned(), "Zürich".to_owned(), "Kraków ✈".to_owned()]);
    let (theirs, ours) = (Topic::new(7).await, Topic::new(7).await);
    write_by_java(&theirs, &keys);
    let producer = Producer::open(&ours.config(), "keys").await.expect("open");
    for key in &keys {
        producer.send(&Message::to(&ours.name).key(key.as_bytes()), None).await.expect("send");
    }
    producer.flush().await.expect("flush");
    let expected = by_key(&theirs);
    assert_eq!(by_key(&ours), expected);
    assert!(
        expected.values().collect::<std::collections::BTreeSet<_>>().len() == 7,
        "all partitions are hit"
    );
}

/// Messages without a key go somewhere, not all to the place of the empty key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_without_a_key_are_spread() {
    let topic = Topic::new(4).await;
    let config = topic.config().property("sticky.partitioning.linger.ms", "0");
    let producer = Producer::open(&config, "spread").await.expect("open");
    for _ in 0..400 {
        producer.send(&Message::to(&topic.name).value(b"v"), None).await.expect("send");
    }
    producer.flush().await.expect("flush");
    let partitions = producer.delivered().partitions;
    assert_eq!(partitions.len(), 4, "{partitions:?}");
    assert_eq!(partitions.values().sum::<u64>(), 400);
}
