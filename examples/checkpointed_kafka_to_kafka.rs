//! From one Kafka topic to another, exactly once, by a process that is killed on the way.
//!
//! ```text
//! cargo run -p levada-testcontainers -- run -- cargo run -p levada-examples --features kafka --bin checkpointed_kafka_to_kafka
//! ```
//!
//! The program starts itself as a child. The first life copies the delays of real flights from topic to topic and dies by
//! SIGKILL as soon as a reader of committed records sees some of them. The second life finds in the last checkpoint how far
//! the first topic was read, and which transactions wait to be committed: it commits those, aborts what no checkpoint names,
//! and goes on.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use levada_core::BoxError;
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_engine::{Input, Job};
use levada_examples::{Replayed, flights, replay};
use levada_kafka::sink::producing::{InBatch, KafkaSinkConfig, Message, Outgoing};
use levada_kafka::sink::two_phase::TransactionalSink;
use levada_kafka::{KafkaSource, KafkaSourceConfig, StopAt};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use serde_json::Value;

const JANUARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/flights-2013-01.csv.gz");
const PARTITIONS: i32 = 4;

/// Who was late, and by how many minutes: none for a flight that was cancelled or diverted.
struct Delay {
    carrier: String,
    minutes: Option<i64>,
}

fn delay(input: &Input<'_, ()>) -> Result<Delay, BoxError> {
    let flight: Value = serde_json::from_slice(input.value().ok_or("no value")?)?;
    let carrier = flight["carrier"].as_str().ok_or("no carrier")?.to_owned();
    Ok(Delay { carrier, minutes: flight["arr_delay"].as_i64() })
}

/// Writes where a delay was read beside it, so that one that comes twice would be seen. No delay is no record.
fn written(topic: &str, record: InBatch<'_, Delay>, out: &mut Outgoing) {
    let delay = record.item();
    if let Some(minutes) = delay.minutes {
        let value = format!("{} {minutes}", record.coordinates());
        out.push(&Message::to(topic).key(delay.carrier.as_bytes()).value(value.as_bytes()));
    }
}

/// One life: copies what no checkpoint covers yet.
async fn live(brokers: &str, prefix: &str, folder: &Path, stop: StopAt) -> Result<(), Box<dyn Error>> {
    let (from, to) = (format!("{prefix}-flights"), format!("{prefix}-delays"));
    let source = KafkaSourceConfig::new(brokers, [from]).stop_at(stop);
    let sink = KafkaSinkConfig::new(brokers).topics([&to]);
    let prefix = prefix.to_owned();
    let job = Job::new("delays")
        .parallelism(2)
        .source("flights", move |_| KafkaSource::new(source.clone()).expect("a configuration that works"))
        .map("delay", |input| delay(&input))
        .checkpointed()
        .two_phase_sink("delays", TwoPhaseOptions::default(), move |_| {
            let to = to.clone();
            let serialise = move |record: InBatch<'_, Delay>, out: &mut Outgoing| {
                written(&to, record, out);
                Ok(())
            };
            let sink = TransactionalSink::new(sink.clone(), &prefix, "delays", serialise);
            sink.expect("a configuration that works")
        })
        .checkpoints(CheckpointSettings { interval: Some(Duration::from_millis(100)), ..Default::default() });
    job.run(Store::open_folder(folder).await?).await?;
    Ok(())
}

fn start(arguments: [&str; 3], folder: &Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args(arguments).arg(folder).spawn()
}

/// Returns everything that a reader of committed records finds in a topic.
fn visible(brokers: &str, topic: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .create()?;
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&all)?;
    let (mut found, mut ended) = (Vec::new(), 0);
    while ended < PARTITIONS {
        match consumer.poll(Duration::from_secs(30)).ok_or("nothing was read in time")? {
            Ok(record) => found.push(str::from_utf8(record.payload().unwrap_or_default())?.to_owned()),
            Err(KafkaError::PartitionEOF(_)) => ended += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = std::env::var("LEVADA_KAFKA_BOOTSTRAP").map_err(|_| "LEVADA_KAFKA_BOOTSTRAP is not set")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [prefix, stop, _, folder] = &arguments[..] {
        let stop = if stop == "at the end" { StopAt::LatestAtStart } else { StopAt::Never };
        return live(&brokers, prefix, Path::new(folder), stop).await;
    }
    let prefix = arguments.first().map_or("copied", String::as_str);
    let (from, to) = (format!("{prefix}-flights"), format!("{prefix}-delays"));
    let flights = flights(Path::new(JANUARY))?.into_iter();
    let records = flights.map(|flight| Replayed { key: flight.key, value: flight.value, timestamp: None });
    let records: Vec<Replayed> = records.collect();
    replay(&brokers, &to, PARTITIONS, &[]).await?;
    replay(&brokers, &from, PARTITIONS, &records).await?;

    let folder = tempfile::tempdir()?;
    let mut first = start([prefix, "never", "first life"], folder.path())?;
    let seen = loop {
        match visible(&brokers, &to) {
            Ok(none) if none.is_empty() => {}
            seen => break seen,
        }
    };
    first.kill()?;
    first.wait()?;
    seen?;
    let second = start([prefix, "at the end", "second life"], folder.path())?.wait()?;
    if !second.success() {
        return Err(format!("the second life: {second}").into());
    }
    let found = visible(&brokers, &to)?;
    let different: BTreeSet<&String> = found.iter().collect();
    println!("{} flights, {} delays, {} of them different", records.len(), found.len(), different.len());
    Ok(())
}
