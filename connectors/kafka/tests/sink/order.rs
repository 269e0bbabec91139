//! The order within a partition.

use levada_kafka::sink::producing::{KafkaSinkConfig, Message, Producer};
use levada_testcontainers::Kafka;

use super::support::{Read, Topic};

/// [KSK-03] connections that break in the midst of requests: nothing is missing, nothing is there twice, and each
/// partition is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_within_partitions_while_connections_break() {
    let broker = Kafka::builder().behind_cut().start().expect("a broker");
    let bootstrap = broker.bootstrap_behind_cut().expect("a proxy");
    let cut = broker.broker(1).cut().expect("a proxy");
    let topic = Topic::at(broker.bootstrap(), 3, &[]).await;
    let config = KafkaSinkConfig::new(bootstrap)
        .topics([&topic.name])
        .property("reconnect.backoff.ms", "10")
        .property("reconnect.backoff.max.ms", "100");
    let producer = Producer::open(&config, "cut").await.expect("open");
    let texts: Vec<String> = (0..30_000).map(|number| format!("{number:>200}")).collect();
    for (number, text) in texts.iter().enumerate() {
        if number % 5_000 == 2_500 {
            cut.cut_all();
        }
        let message = Message::to(&topic.name).partition(number as u32 % 3).value(text.as_bytes());
        producer.send(&message, None).await.expect("send");
    }
    producer.flush().await.expect("flush");
    let read = topic.read();
    for partition in 0..3 {
        let found: Vec<&str> =
            read.iter().filter(|read| read.partition == partition).map(Read::text).collect();
        let written: Vec<&str> =
            texts.iter().skip(partition as usize).step_by(3).map(String::as_str).collect();
        assert!(found == written, "partition {partition}: {} of {} messages", found.len(), written.len());
    }
}
