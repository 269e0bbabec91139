//! Writes records to a Kafka topic, in order.

use std::sync::Mutex;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};

/// A record to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// Decides the partition, as Kafka's own clients do.
    pub key: String,
    /// What is written.
    pub value: String,
    /// In ms since the epoch; the moment of writing if there is none.
    pub timestamp: Option<i64>,
}

/// Counts what the broker acknowledged and keeps the first failure: a record that was sent is not yet written.
#[derive(Default)]
struct Deliveries(Mutex<(usize, Option<KafkaError>)>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut counted = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match result {
            Ok(record) if record.offset() >= 0 => counted.0 += 1,
            // The client's own conclusion, which no broker has confirmed.
            Ok(_) => {
                let unknown = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
                counted.1.get_or_insert(unknown);
            }
            Err((error, _)) => {
                counted.1.get_or_insert_with(|| error.clone());
            }
        }
    }
}

/// Creates the topic if it is missing, writes the records in their order, and returns how many the broker has.
///
/// # Errors
/// The first thing that went wrong; a part of the records may be there then.
pub async fn replay(
    brokers: &str,
    topic: &str,
    partitions: i32,
    records: &[Replayed],
) -> Result<usize, KafkaError> {
    create(brokers, topic, partitions).await?;
    let producer: BaseProducer<Deliveries> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        // A new partition may refuse a first batch for a moment and take the second.
        .set("max.in.flight.requests.per.connection", "1")
        .set("linger.ms", "20")
        .set("partitioner", "murmur2_random")
        .create_with_context(Deliveries::default())?;
    for Replayed { key, value, timestamp } in records {
        let mut record = BaseRecord::to(topic).key(key).payload(value);
        record.timestamp = *timestamp;
        // A full queue empties as the broker acknowledges.
        while let Err((error, unsent)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error);
            }
            producer.poll(Duration::from_millis(100));
            record = unsent;
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(60))?;
    let counted = producer.context().0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match &counted.1 {
        Some(failure) => Err(failure.clone()),
        None => Ok(counted.0),
    }
}

async fn create(brokers: &str, topic: &str, partitions: i32) -> Result<(), KafkaError> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    // Records that are years old by their timestamps stay.
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1)).set("retention.ms", "-1");
    for outcome in admin.create_topics([&new], &AdminOptions::new()).await? {
        match outcome {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(KafkaError::AdminOp(code)),
        }
    }
    Ok(())
}
