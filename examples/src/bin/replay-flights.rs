//! Replays real flights into a Kafka topic: `replay-flights --brokers HOST:PORT --topic flights FLIGHTS.csv.gz`.
//!
//! The topic is created if it is missing; a flight's key decides its partition.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use clap::Parser;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};

#[derive(Parser)]
struct Arguments {
    /// The cluster, `host:port`.
    #[arg(long)]
    brokers: String,
    /// The topic to write to.
    #[arg(long)]
    topic: String,
    /// The partitions of the topic, if it is created.
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Flights as gzipped CSV.
    file: PathBuf,
}

/// Counts what the broker acknowledged and keeps the first failure: a record that was sent is not yet written.
#[derive(Default)]
struct Deliveries(Mutex<(usize, Option<KafkaError>)>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut counted = self.0.lock().expect("no thread panics while it counts");
        match result {
            Ok(_) => counted.0 += 1,
            Err((error, _)) => {
                counted.1.get_or_insert_with(|| error.clone());
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let flights = levada_examples::flights(&arguments.file)?;
    create_topic(&arguments).await?;

    let producer: BaseProducer<Deliveries> = ClientConfig::new()
        .set("bootstrap.servers", &arguments.brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .create_with_context(Deliveries::default())?;
    for flight in &flights {
        let mut record = BaseRecord::to(&arguments.topic).key(&flight.key).payload(&flight.value);
        // A full queue empties as the broker acknowledges.
        while let Err((error, unsent)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(100));
            record = unsent;
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(60))?;
    let (acknowledged, failure) = &*producer.context().0.lock().expect("no thread panics while it counts");
    if let Some(failure) = failure {
        return Err(failure.clone().into());
    }
    println!("{acknowledged} flights are in topic {}", arguments.topic);
    Ok(())
}

async fn create_topic(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &arguments.brokers).create()?;
    let topic = NewTopic::new(&arguments.topic, arguments.partitions, TopicReplication::Fixed(1));
    for outcome in admin.create_topics([&topic], &AdminOptions::new()).await? {
        match outcome {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => return Err(format!("cannot create topic {topic}: {code}").into()),
        }
    }
    Ok(())
}
