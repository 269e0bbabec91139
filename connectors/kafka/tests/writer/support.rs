//! Topics, writers, and reading back.

use std::time::{Duration, Instant};

use levada_kafka::protocol::{
    Ending, ProtocolClient, ProtocolConfig, State, TransactionAdmin as _, TransactionKey,
};
use levada_kafka::sink::producing::{KafkaSinkConfig, Message};
use levada_kafka::sink::writer::{TransactionHandle, TransactionalWriter};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// Long enough for a busy machine; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A topic of a test's own, with two partitions, whose name is the prefix of the test's transactional ids.
pub(crate) struct Topic {
    pub(crate) bootstrap: String,
    pub(crate) name: String,
    pub(crate) admin: ProtocolClient,
}

impl Topic {
    pub(crate) async fn new() -> Self {
        let bootstrap = Kafka::shared().expect("a broker").bootstrap().to_owned();
        Self::at(&bootstrap).await
    }

    pub(crate) async fn at(bootstrap: &str) -> Self {
        let (bootstrap, name) = (bootstrap.to_owned(), unique_name("writer"));
        let topic = NewTopic::new(&name, 2, TopicReplication::Fixed(1)).set("max.message.bytes", "2000");
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &bootstrap).create().expect("an admin client");
        let made = admin.create_topics([&topic], &AdminOptions::new()).await.expect("create topics");
        made.into_iter().for_each(|made| drop(made.expect("create the topic")));
        let config = ProtocolConfig::from_properties([("bootstrap.servers", &bootstrap)]);
        let admin = ProtocolClient::new(config.expect("an address")).expect("a client");
        Self { bootstrap, name, admin }
    }

    pub(crate) fn config(&self) -> KafkaSinkConfig {
        KafkaSinkConfig::new(&self.bootstrap).topics([&self.name])
    }

    pub(crate) fn writer(&self, attempt: u64) -> TransactionalWriter {
        self.named("orders", attempt)
    }

    pub(crate) fn named(&self, name: &str, attempt: u64) -> TransactionalWriter {
        TransactionalWriter::new(self.config(), &self.name, name, attempt).expect("it works")
    }

    /// A writer of the first attempt, ready.
    pub(crate) async fn started(&self) -> TransactionalWriter {
        let mut writer = self.writer(1);
        writer.resolve(&[]).await.expect("nothing to resolve");
        writer
    }

    pub(crate) async fn send(&self, writer: &TransactionalWriter, partition: u32, value: &str) {
        let message = Message::to(&self.name).partition(partition).value(value.as_bytes());
        writer.send(&message).await.expect("sent");
    }

    /// Prepares a transaction with one message in each partition.
    pub(crate) async fn prepared(&self, writer: &mut TransactionalWriter, value: &str) -> TransactionHandle {
        writer.begin().await.expect("begun");
        for partition in 0..2 {
            self.send(writer, partition, value).await;
        }
        writer.prepare().await.expect("prepared").expect("a handle")
    }

    pub(crate) async fn state(&self, id: &str) -> Option<State> {
        let mut told = self.admin.describe(&[id], PATIENCE).await.expect("described");
        told.remove(id).flatten().map(|told| told.state)
    }

    /// Waits until the coordinator says so of an id.
    pub(crate) async fn until(&self, id: &str, state: State) {
        let started = Instant::now();
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while self.state(id).await != Some(state) {
            assert!(started.elapsed() < PATIENCE, "{state:?} in time");
            looks.tick().await;
        }
    }

    /// Ends a transaction in the place of its writer.
    pub(crate) async fn end(&self, handle: &TransactionHandle, ending: Ending) {
        let TransactionHandle { transactional_id, producer_id, epoch, .. } = handle;
        let key = TransactionKey { transactional_id, producer_id: *producer_id, epoch: *epoch };
        self.admin.end(key, ending, PATIENCE).await.expect("ended");
        let state = if ending == Ending::Commit { State::CompleteCommit } else { State::CompleteAbort };
        self.until(&handle.transactional_id, state).await;
    }

    /// Takes the id of a transaction, as the broker does when the time is up: it is aborted, and the epoch raised.
    pub(crate) async fn fence(&self, handle: &TransactionHandle) {
        let TransactionHandle { transactional_id, timeout, .. } = handle;
        self.admin.fence(transactional_id, *timeout, PATIENCE).await.expect("fenced");
    }

    /// Reads what readers of committed data see, once every transaction is decided or open.
    pub(crate) async fn read(&self) -> Vec<String> {
        let prefix = format!("{}.", self.name);
        loop {
            let listed = self.admin.list(&[State::PrepareCommit, State::PrepareAbort], PATIENCE).await;
            if !listed.expect("listed").iter().any(|listed| listed.transactional_id.starts_with(&prefix)) {
                break;
            }
        }
        (0..2).flat_map(|partition| self.read_partition(partition)).collect()
    }

    fn read_partition(&self, partition: i32) -> Vec<String> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", unique_name("reader"))
            .set("enable.partition.eof", "true")
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, partition, Offset::Beginning).expect("an offset");
        consumer.assign(&list).expect("assign");
        let (mut read, started) = (Vec::new(), Instant::now());
        loop {
            match consumer.poll(PATIENCE) {
                Some(Ok(message)) => {
                    let value = message.payload().expect("a value");
                    read.push(format!("{partition}:{}", std::str::from_utf8(value).expect("text")));
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return read,
                Some(Err(error)) => panic!("reading back: {error}"),
                None => assert!(started.elapsed() < PATIENCE, "a message or the end in time"),
            }
        }
    }
}

/// What readers see of values that were written into both partitions.
pub(crate) fn both(values: &[&str]) -> Vec<String> {
    (0..2).flat_map(|partition| values.iter().map(move |value| format!("{partition}:{value}"))).collect()
}
