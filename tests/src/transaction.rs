//! Transactions of another producer, left open for as long as a test likes.

use levada_core::Timestamp;
use levada_core::time::OpenTransaction;
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::process::PATIENCE;

/// An open transaction. What it has written is at the broker, and may not be read yet.
pub struct Transaction {
    topic: String,
    brokers: String,
    id: String,
    producer: BaseProducer,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begins one, with a producer of its own.
    ///
    /// # Panics
    /// Panics if the broker does not let it.
    pub fn begin(brokers: &str, topic: &str) -> Self {
        let id = unique_name("transaction");
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("transactional.id", &id)
            .set("transaction.timeout.ms", "600000")
            .create()
            .expect("a producer");
        producer.init_transactions(PATIENCE).expect("the broker knows the producer");
        producer.begin_transaction().expect("a transaction");
        Self { topic: topic.to_owned(), brokers: brokers.to_owned(), id, producer }
    }

    /// Writes records with these timestamps, each with its timestamp as its value, and waits until the broker has them.
    ///
    /// # Panics
    /// Panics if it does not take one.
    #[must_use]
    pub fn write_at(self, partition: i32, timestamps: &[i64]) -> Self {
        for timestamp in timestamps {
            let value = timestamp.to_string();
            let record = BaseRecord::<str, str>::to(&self.topic).partition(partition).payload(&value);
            self.producer
                .send(record.timestamp(*timestamp))
                .map_err(|(error, _)| error)
                .expect("a record sent");
        }
        self.producer.flush(PATIENCE).expect("the broker takes the records");
        self
    }

    /// Returns whose it is, and since when, as Kafka's own tool tells it.
    ///
    /// # Panics
    /// Panics if it does not.
    pub fn told(&self) -> OpenTransaction {
        let words = ["--bootstrap-server", &self.brokers, "describe", "--transactional-id", &self.id];
        // The tool is that of any broker.
        let kafka = Kafka::shared().expect("Kafka");
        let mut tool = kafka.tool("org.apache.kafka.tools.TransactionsCommand", words).expect("the tool");
        let printed = String::from_utf8_lossy(&tool.output().expect("the tool runs").stdout).into_owned();
        let mut lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let number = |name: &str| {
            let place = names.iter().position(|found| *found == name);
            let value = place.and_then(|place| values.get(place)?.parse().ok());
            value.unwrap_or_else(|| panic!("no {name} in {printed:?}"))
        };
        let since = Some(Timestamp(number("CurrentTransactionStartTimeMs")));
        OpenTransaction { producer_id: number("ProducerId"), since }
    }

    /// Commits it.
    ///
    /// # Panics
    /// Panics if the broker does not.
    pub fn commit(self) {
        self.producer.commit_transaction(PATIENCE).expect("the transaction is committed");
    }
}
