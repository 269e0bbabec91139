//! The order within a partition.

use levada_kafka::sink::producing::{KafkaSinkConfig, Message, Producer};
use levada_testcontainers::{Action, Direction, Kafka, Trigger};

use super::support::{Read, Topic};

/// [KSK-03] answers that are lost after the broker has written: nothing is missing, nothing is there twice, and each
/// partition is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_within_partitions_while_answers_are_lost() {
    let broker = Kafka::builder().behind_cut().start().expect("a broker");
    let cut = broker.broker(1).cut().expect("a proxy");
    let topic = Topic::at(broker.bootstrap(), 3, &[]).await;
    let config = KafkaSinkConfig::new(broker.bootstrap_behind_cut().expect("a proxy"))
        .topics([&topic.name])
        // Several requests on their way at once.
        .property("max.in.flight.requests.per.connection", "5")
        .property("batch.size", "20000")
        .property("reconnect.backoff.ms", "10")
        .property("reconnect.backoff.max.ms", "100");
    let producer = Producer::open(&config, "cut").await.expect("open");
    let texts: Vec<String> = (0..12_000).map(|number| format!("{number:>200}")).collect();
    for round in texts.chunks(2_000) {
        // The client is quiet, so what comes next is the answer to a request that has been carried out.
        let lost = cut.when(Direction::ToClient, Trigger::after_bytes(10), Action::Cut);
        for text in round {
            let number: u32 = text.trim().parse().expect("a number");
            let message = Message::to(&topic.name).partition(number % 3).value(text.as_bytes());
            producer.send(&message, None).await.expect("send");
        }
        producer.flush().await.expect("flush");
        assert!(lost.has_fired());
    }
    let read = topic.read();
    for partition in 0..3 {
        let found: Vec<&str> =
            read.iter().filter(|read| read.partition == partition).map(Read::text).collect();
        let written: Vec<&str> =
            texts.iter().skip(partition as usize).step_by(3).map(String::as_str).collect();
        assert!(found == written, "partition {partition}: {} of {} messages", found.len(), written.len());
    }
}
