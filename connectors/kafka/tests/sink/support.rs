//! Topics, records, and reading back for the tests of this binary.

use std::time::{Duration, Instant};

use levada_core::batch::RawRecord;
use levada_core::template::WriteContext;
use levada_core::{Batch, BatchBuilder, ErrorChain, SinkContext, SplitId, Timestamp, TimestampKind};
use levada_kafka::sink::producing::KafkaSinkConfig;
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// Long enough for a busy machine; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A topic of a test's own.
pub(crate) struct Topic {
    pub(crate) bootstrap: String,
    pub(crate) name: String,
}

/// A message as it was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) partition: i32,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) timestamp: Option<i64>,
}

impl Read {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().unwrap_or_default()).expect("text")
    }
}

impl Topic {
    /// Makes a topic on the shared broker.
    pub(crate) async fn new(partitions: i32) -> Topic {
        let bootstrap = Kafka::shared().expect("a broker").bootstrap().to_owned();
        Topic::at(&bootstrap, partitions, &[]).await
    }

    /// The same with properties of the topic.
    pub(crate) async fn with(partitions: i32, properties: &[(&str, &str)]) -> Topic {
        let bootstrap = Kafka::shared().expect("a broker").bootstrap().to_owned();
        Topic::at(&bootstrap, partitions, properties).await
    }

    /// The same on a broker of the test's own.
    pub(crate) async fn at(bootstrap: &str, partitions: i32, properties: &[(&str, &str)]) -> Topic {
        Topic::made(bootstrap, (partitions, 1), properties).await
    }

    /// A topic with one partition and three replicas.
    pub(crate) async fn replicated(bootstrap: &str) -> Topic {
        Topic::made(bootstrap, (1, 3), &[]).await
    }

    /// A topic whose partitions are each on one broker of three: partition `p` on broker `p + 1`.
    pub(crate) async fn spread(bootstrap: &str) -> Topic {
        let name = unique_name("sink");
        let on: [&[i32]; 3] = [&[1], &[2], &[3]];
        let topic = NewTopic::new(&name, 3, TopicReplication::Variable(&on)).set("min.insync.replicas", "1");
        Topic::make(bootstrap, name.clone(), &topic).await
    }

    async fn made(bootstrap: &str, (partitions, replicas): (i32, i32), properties: &[(&str, &str)]) -> Topic {
        let name = unique_name("sink");
        let mut topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(replicas));
        for (key, value) in properties {
            topic = topic.set(key, value);
        }
        Topic::make(bootstrap, name.clone(), &topic).await
    }

    async fn make(bootstrap: &str, name: String, topic: &NewTopic<'_>) -> Topic {
        let results =
            admin(bootstrap).create_topics([topic], &AdminOptions::new()).await.expect("create topics");
        results.into_iter().for_each(|result| drop(result.expect("create the topic")));
        let topic = Topic { bootstrap: bootstrap.to_owned(), name };
        topic.wait_until_known();
        topic
    }

    /// A broker hears of a new topic a moment after it was made.
    fn wait_until_known(&self) {
        let (consumer, started) = (self.consumer(), Instant::now());
        loop {
            let told = consumer.fetch_metadata(Some(&self.name), PATIENCE).expect("metadata");
            if told.topics().iter().all(|topic| topic.error().is_none() && !topic.partitions().is_empty()) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "the topic is known in time");
        }
    }

    pub(crate) async fn delete(&self) {
        let options = AdminOptions::new();
        let deleted = admin(&self.bootstrap).delete_topics(&[&self.name], &options).await.expect("delete");
        deleted.into_iter().for_each(|result| drop(result.expect("delete the topic")));
    }

    pub(crate) fn config(&self) -> KafkaSinkConfig {
        KafkaSinkConfig::new(&self.bootstrap)
    }

    /// Reads all that readers of committed data see now, by partition and offset.
    pub(crate) fn read(&self) -> Vec<Read> {
        let metadata = self.consumer().fetch_metadata(Some(&self.name), PATIENCE).expect("metadata");
        let partitions = metadata.topics()[0].partitions().len() as i32;
        (0..partitions).flat_map(|partition| self.read_partition(partition)).collect()
    }

    /// Waits until readers of committed data see so many records, and returns what they see. A leader that has just come back
    /// tells of what is committed a moment later.
    pub(crate) fn texts_once_there_are(&self, count: usize) -> Vec<String> {
        let started = Instant::now();
        loop {
            let read = self.read();
            if read.len() >= count {
                return read.iter().map(|read| read.text().to_owned()).collect();
            }
            assert!(started.elapsed() < PATIENCE, "{count} records in time, and not {read:?}");
        }
    }

    fn consumer(&self) -> BaseConsumer {
        ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", unique_name("reader"))
            .set("enable.partition.eof", "true")
            // The end is told by an answer without records, and the broker keeps that back for so long.
            .set("fetch.wait.max.ms", "5")
            .create()
            .expect("a consumer")
    }

    fn read_partition(&self, partition: i32) -> Vec<Read> {
        // A consumer that goes on to another partition may still have something of the last one to tell.
        let consumer = self.consumer();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, partition, Offset::Beginning).expect("an offset");
        consumer.assign(&list).expect("assign");
        let mut read = Vec::new();
        let started = Instant::now();
        loop {
            match consumer.poll(PATIENCE) {
                Some(Ok(message)) => read.push(owned(&message)),
                Some(Err(KafkaError::PartitionEOF(_))) => return read,
                // The client tries again, elsewhere.
                Some(Err(error)) if is_of_a_lost_broker(&error) && started.elapsed() < PATIENCE => {}
                Some(Err(error)) => panic!("reading back: {error}"),
                // Other events end a poll, too.
                None => assert!(started.elapsed() < PATIENCE, "a message or the end in time"),
            }
        }
    }
}

fn is_of_a_lost_broker(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure};
    error.rdkafka_error_code().is_some_and(|code| matches!(code, AllBrokersDown | BrokerTransportFailure))
}

fn owned(message: &impl Message) -> Read {
    let bytes = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
    let headers = message.headers().map(|headers| headers.iter().collect::<Vec<_>>()).unwrap_or_default();
    Read {
        partition: message.partition(),
        key: bytes(message.key()),
        value: bytes(message.payload()),
        headers: headers.into_iter().map(|header| (header.key.to_owned(), bytes(header.value))).collect(),
        timestamp: message.timestamp().to_millis(),
    }
}

pub(crate) fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client")
}

pub(crate) fn context() -> SinkContext {
    SinkContext { job: "delays".to_owned(), subtask: 0, parallelism: 1 }
}

pub(crate) fn now() -> WriteContext {
    WriteContext { processing_time: Timestamp(1), watermark: Timestamp::MIN }
}

/// A batch of records of `flights-3` with these values, the first at offset `first`.
pub(crate) fn batch<'v>(first: u64, values: impl IntoIterator<Item = &'v [u8]>) -> Batch<()> {
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("flights", 3));
    for (offset, value) in (first..).zip(values) {
        let raw = RawRecord {
            offset,
            timestamp: Timestamp(1_700_000_000_000 + offset as i64),
            timestamp_kind: TimestampKind::Create,
            value: Some(value),
            ..RawRecord::default()
        };
        builder.push(split, raw);
    }
    builder.finish().0
}

/// Prints an error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    ErrorChain(error).to_string()
}
