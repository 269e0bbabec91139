//! Transactions of another producer, left open for as long as a test likes.

use levada_testcontainers::unique_name;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::process::PATIENCE;

/// An open transaction. What it has written is at the broker, and may not be read yet.
pub struct Transaction {
    topic: String,
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
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("transactional.id", unique_name("transaction"))
            .set("transaction.timeout.ms", "600000")
            .create()
            .expect("a producer");
        producer.init_transactions(PATIENCE).expect("the broker knows the producer");
        producer.begin_transaction().expect("a transaction");
        Self { topic: topic.to_owned(), producer }
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

    /// Commits it.
    ///
    /// # Panics
    /// Panics if the broker does not.
    pub fn commit(self) {
        self.producer.commit_transaction(PATIENCE).expect("the transaction is committed");
    }
}
