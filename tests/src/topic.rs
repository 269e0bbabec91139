//! Topics with records in them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levada_testcontainers::{unique_name, wait_until};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};

use crate::process::PATIENCE;

/// A topic of one test, with a producer for it.
pub struct Topic {
    /// Its name.
    pub name: String,
    brokers: String,
    producer: BaseProducer<Failures>,
}

impl std::fmt::Debug for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Topic").field(&self.name).finish()
    }
}

/// Counts records that the broker did not take, or has not said so: a report without an offset is the client's own conclusion, and
/// was seen to be wrong.
#[derive(Default)]
struct Failures(AtomicU64);

impl ClientContext for Failures {}

impl ProducerContext for Failures {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let is_written = result.as_ref().is_ok_and(|record| record.offset() >= 0);
        self.0.fetch_add(u64::from(!is_written), Ordering::Relaxed);
    }
}

impl Topic {
    /// Creates a topic of a name that nobody else has.
    ///
    /// # Panics
    /// Panics if the broker does not.
    pub fn create(brokers: &str, partitions: i32) -> Self {
        Self::named(unique_name("topic"), brokers, partitions)
    }

    /// Deletes the topic and creates another one of its name, without records.
    ///
    /// # Panics
    /// Panics if the broker does not.
    #[must_use]
    pub fn made_anew(self, brokers: &str, partitions: i32) -> Self {
        let (runtime, admin) = (runtime(), admin(brokers));
        let deleted = runtime.block_on(admin.delete_topics(&[&self.name], &AdminOptions::new()));
        deleted
            .expect("an answer")
            .into_iter()
            .for_each(|outcome| drop(outcome.expect("the topic is deleted")));
        Self::named(self.name, brokers, partitions)
    }

    fn named(name: String, brokers: &str, partitions: i32) -> Self {
        let (runtime, admin) = (runtime(), admin(brokers));
        let topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(-1));
        let created =
            runtime.block_on(admin.create_topics([&topic], &AdminOptions::new())).expect("an answer");
        created.into_iter().for_each(|outcome| drop(outcome.expect("the topic is created")));
        let topic = Self::with_producer(name, brokers);
        topic.wait_until_known(partitions);
        topic
    }

    fn with_producer(name: String, brokers: &str) -> Self {
        let producer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            // What stands at the beginning of a partition whose leader is new would else be lost or overtaken now and then.
            .set("max.in.flight.requests.per.connection", "1")
            .create_with_context(Failures::default())
            .expect("a producer");
        Self { name, brokers: brokers.to_owned(), producer }
    }

    /// The controller has created it; the broker that others ask may learn of it a moment later.
    fn wait_until_known(&self, partitions: i32) {
        let is_known = || {
            let answer = self.producer.client().fetch_metadata(Some(&self.name), PATIENCE);
            let metadata = answer.expect("metadata of the topic");
            metadata.topics().iter().any(|topic| topic.partitions().len() == partitions as usize)
        };
        wait_until(PATIENCE, "the topic at the broker", is_known).expect("a broker that knows the topic");
    }

    /// Sends a record; without a partition its key decides.
    ///
    /// # Panics
    /// Panics if the client refuses it.
    pub fn send(&self, partition: Option<i32>, key: Option<&str>, value: Option<&str>) {
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(&self.name);
        record.key = key;
        record.payload = value;
        record.partition = partition;
        self.send_record(record);
    }

    /// Writes records with these timestamps, each with its timestamp as its value, and waits until the broker has them.
    ///
    /// # Panics
    /// Panics if it does not take one.
    pub fn write_at(&self, partition: i32, timestamps: &[i64]) {
        // A client that has lived through an outage may have let go of all brokers.
        let fresh = Self::with_producer(self.name.clone(), &self.brokers);
        for timestamp in timestamps {
            let value = timestamp.to_string();
            let record = BaseRecord::to(&self.name).partition(partition).payload(value.as_str());
            fresh.send_record(record.timestamp(*timestamp));
        }
        fresh.flush();
    }

    fn send_record(&self, mut record: BaseRecord<'_, str, str>) {
        while let Err((error, unsent)) = self.producer.send(record) {
            assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            self.wait(Duration::from_millis(50));
            record = unsent;
        }
    }

    /// Serves the client for a while.
    pub fn wait(&self, duration: Duration) {
        self.producer.poll(duration);
    }

    /// Waits until the broker has every record.
    ///
    /// # Panics
    /// Panics if it does not take one.
    pub fn flush(&self) {
        self.producer.flush(Duration::from_secs(60)).expect("the broker takes the records");
        assert_eq!(
            self.producer.context().0.load(Ordering::Relaxed),
            0,
            "records that the broker did not take"
        );
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().expect("an admin client")
}
