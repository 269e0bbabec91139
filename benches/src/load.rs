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
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for outcome in admin.create_topics([&new], &AdminOptions::new()).await? {
        outcome.map_err(|(topic, code)| format!("cannot create topic {topic}: {code}"))?;
    }
    let producer: BaseProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "50")
        .set("batch.size", "1000000")
        .create()?;
    for number in 0..rows {
        let (key, value) = (number.to_string(), row(number));
        let partition = (number % partitions as u64) as i32;
        let mut record = BaseRecord::to(topic).partition(partition).key(&key).payload(&value);
        while let Err((error, unsent)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(50));
            record = unsent;
        }
        if number.is_multiple_of(1000) {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(Duration::from_secs(120))?;
    Ok(())
}
