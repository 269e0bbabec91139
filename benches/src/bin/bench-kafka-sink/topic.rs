//! The topic of a run.

use std::process;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::load::Failure;

const PARTITIONS: i32 = 4;
const WITHIN: Duration = Duration::from_secs(30);

fn admin(brokers: &str) -> Result<AdminClient<DefaultClientContext>, Failure> {
    Ok(ClientConfig::new().set("bootstrap.servers", brokers).create()?)
}

pub(crate) async fn make(brokers: &str, variant: &str) -> Result<String, Failure> {
    let name = format!("{variant}-{}", process::id());
    let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1)).set("file.delete.delay.ms", "0");
    for outcome in admin(brokers)?.create_topics([&topic], &AdminOptions::new()).await? {
        outcome.map_err(|(topic, code)| format!("cannot create topic {topic}: {code}"))?;
    }
    Ok(name)
}

/// Sees by the offsets that the records are there, and deletes the topic.
pub(crate) async fn check_and_delete(brokers: &str, topic: &str, records: u64) -> Result<(), Failure> {
    let consumer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let mut offsets = 0;
    for partition in 0..PARTITIONS {
        offsets += consumer.fetch_watermarks(topic, partition, WITHIN)?.1;
    }
    // Markers of transactions take an offset in each partition.
    assert!(offsets as u64 >= records, "{records} records, {offsets} offsets");
    for outcome in admin(brokers)?.delete_topics(&[topic], &AdminOptions::new()).await? {
        outcome.map_err(|(topic, code)| format!("cannot delete topic {topic}: {code}"))?;
    }
    Ok(())
}
