//! The load: rows of about 200 bytes of JSON with 7 columns, produced once.

use std::error::Error;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

/// The table that the rows fit.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, customer text NOT NULL, \
    amount numeric(12, 2) NOT NULL, quantity int NOT NULL, placed timestamptz NOT NULL, is_paid boolean NOT NULL, \
    note text)";

/// Returns row `number` as JSON.
pub fn row(number: u64) -> String {
    let (day, second) = (number % 28 + 1, number % 60);
    format!(
        "{{\"id\":{number},\"customer\":\"customer-{:08}\",\"amount\":{}.{:02},\"quantity\":{},\
         \"placed\":\"2013-01-{day:02}T10:00:{second:02}Z\",\"is_paid\":{},\"note\":\"{:=<60}\"}}",
        number * 7919 % 100_000_000,
        number % 100_000,
        number % 100,
        number % 1000,
        number.is_multiple_of(3),
        number
    )
}

/// Creates a topic and fills it with `rows` rows.
///
/// # Errors
/// Whatever the cluster refuses.
pub async fn fill(brokers: &str, topic: &str, partitions: i32, rows: u64) -> Result<(), Box<dyn Error>> {
    create(brokers, topic, partitions).await?;
    let producer = producer(brokers, "50")?;
    for number in 0..rows {
        let partition = (number % partitions as u64) as i32;
        send(&producer, topic, partition, &number.to_string(), &row(number))?;
    }
    producer.flush(WITHIN)?;
    Ok(())
}

/// How long a client may take.
pub const WITHIN: Duration = Duration::from_secs(120);

/// Creates a topic.
///
/// # Errors
/// Whatever the cluster refuses.
pub async fn create(brokers: &str, topic: &str, partitions: i32) -> Result<(), Box<dyn Error>> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for outcome in admin.create_topics([&new], &AdminOptions::new()).await? {
        outcome.map_err(|(topic, code)| format!("cannot create topic {topic}: {code}"))?;
    }
    Ok(())
}

/// The client that produces the load.
pub type LoadProducer = BaseProducer<DefaultProducerContext>;

/// Returns a producer that waits so many milliseconds for a batch to become large.
///
/// # Errors
/// Properties that the client refuses.
pub fn producer(brokers: &str, linger_ms: &str) -> Result<LoadProducer, KafkaError> {
    ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", linger_ms)
        .set("batch.size", "1000000")
        .create()
}

/// Hands a record to the producer, and waits for room where it has none.
///
/// # Errors
/// What the producer refuses for another reason.
pub fn send(
    producer: &LoadProducer,
    topic: &str,
    partition: i32,
    key: &str,
    value: &str,
) -> Result<(), KafkaError> {
    let mut record = BaseRecord::to(topic).partition(partition).key(key).payload(value);
    while let Err((error, unsent)) = producer.send(record) {
        if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
            return Err(error);
        }
        producer.poll(Duration::from_millis(50));
        record = unsent;
    }
    Ok(())
}
