//! Topics, records and reading for the tests of this binary.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use levada_core::time::{OpenTransaction, SplitEvent};
use levada_core::{
    Assignment, Batch, BatchBuilder, Budget, Polled, Position, Positions, Source, SourceContext, SourceError,
    SplitId, StreamId, Timestamp,
};
use levada_kafka::{KafkaSource, KafkaSourceConfig, StartAt, StopAt};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer,
};
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};

/// Long enough for a busy machine; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A topic of a test's own.
pub(crate) struct Topic {
    pub(crate) bootstrap: String,
    pub(crate) name: String,
}

impl Topic {
    /// Makes a topic on the shared broker.
    pub(crate) async fn new(partitions: i32) -> Topic {
        Topic::with(partitions, &[]).await
    }

    /// The same with properties of the topic.
    pub(crate) async fn with(partitions: i32, properties: &[(&str, &str)]) -> Topic {
        let bootstrap = Kafka::shared().expect("a broker").bootstrap().to_owned();
        Topic::at(&bootstrap, partitions, properties).await
    }

    /// The same on a broker of the test's own.
    pub(crate) async fn at(bootstrap: &str, partitions: i32, properties: &[(&str, &str)]) -> Topic {
        let name = unique_name("source");
        let mut topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
        for (key, value) in properties {
            topic = topic.set(key, value);
        }
        let results =
            admin(bootstrap).create_topics([&topic], &AdminOptions::new()).await.expect("create topics");
        results.into_iter().for_each(|result| drop(result.expect("create the topic")));
        Topic { bootstrap: bootstrap.to_owned(), name }
    }

    pub(crate) fn split(&self, index: u32) -> SplitId {
        SplitId::new(self.name.as_str(), index)
    }

    /// Reads the topic from its start to the end that it has now.
    pub(crate) fn bounded(&self) -> KafkaSourceConfig {
        self.config().stop_at(StopAt::LatestAtStart)
    }

    /// Reads the topic from its start for ever.
    pub(crate) fn config(&self) -> KafkaSourceConfig {
        KafkaSourceConfig::new(&self.bootstrap, [&self.name]).start_at(StartAt::Earliest)
    }

    /// Writes values to one partition and waits until they are stored.
    pub(crate) fn write<'v>(&self, partition: i32, values: impl IntoIterator<Item = &'v str>) {
        let producer = plain_producer(&self.bootstrap);
        self.send(&producer, partition, values);
        producer.flush(PATIENCE).expect("flush");
    }

    /// Writes one value and returns the offset that it was given.
    pub(crate) fn write_one(&self, partition: i32, value: &str) -> i64 {
        let producer: BaseProducer<Told> = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .create_with_context(Told::default())
            .expect("a producer");
        let record = BaseRecord::<str, str>::to(&self.name).partition(partition).payload(value);
        producer.send(record).map_err(|(error, _)| error).expect("send");
        producer.flush(PATIENCE).expect("flush");
        producer.context().0.load(Ordering::SeqCst)
    }

    /// Deletes the topic and makes another of its name, with as many partitions.
    pub(crate) async fn make_anew(&self, partitions: i32) {
        let admin = admin(&self.bootstrap);
        let deleted = admin.delete_topics(&[&self.name], &AdminOptions::new()).await.expect("delete");
        deleted.into_iter().for_each(|result| drop(result.expect("deleted")));
        let again = NewTopic::new(&self.name, partitions, TopicReplication::Fixed(1));
        loop {
            let made = admin.create_topics([&again], &AdminOptions::new()).await.expect("create");
            if made.iter().all(Result::is_ok) {
                return;
            }
        }
    }

    /// Writes records with these timestamps, each with its timestamp as its value.
    pub(crate) fn write_at(&self, partition: i32, timestamps: impl IntoIterator<Item = i64>) {
        let producer = plain_producer(&self.bootstrap);
        for timestamp in timestamps {
            let value = timestamp.to_string();
            let record = BaseRecord::<str, str>::to(&self.name).partition(partition).payload(&value);
            producer.send(record.timestamp(timestamp)).map_err(|(error, _)| error).expect("send");
        }
        producer.flush(PATIENCE).expect("flush");
    }

    /// Commits offsets for a group, as somebody else would who has read so far.
    pub(crate) fn commit(&self, group: &str, offsets: &[(i32, i64)]) {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", group)
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        for &(partition, offset) in offsets {
            list.add_partition_offset(&self.name, partition, Offset::Offset(offset)).expect("an offset");
        }
        consumer.commit(&list, CommitMode::Sync).expect("commit");
    }

    /// Returns a consumer that has joined a group, and has the topic's first partition.
    pub(crate) fn member(&self, group: &str) -> BaseConsumer {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("group.id", group)
            .create()
            .expect("a consumer");
        consumer.subscribe(&[&self.name]).expect("subscribe");
        let has_joined = || {
            drop(consumer.poll(Duration::from_millis(50)));
            consumer.assignment().is_ok_and(|assignment| assignment.count() > 0)
        };
        levada_testcontainers::wait_until(PATIENCE, "a member of the group", has_joined).expect("in time");
        consumer
    }

    /// Writes `count` values of `size` bytes that begin with their number.
    pub(crate) fn write_numbered(&self, partition: i32, count: usize, size: usize) {
        let values: Vec<String> = (0..count).map(|number| padded(number, size)).collect();
        let producer = plain_producer(&self.bootstrap);
        for value in &values {
            self.send(&producer, partition, [value.as_str()]);
        }
        producer.flush(PATIENCE).expect("flush");
    }

    /// Begins a transaction on a producer of its own.
    pub(crate) fn transaction(&self) -> Transaction<'_> {
        let id = unique_name("tx");
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.bootstrap)
            .set("transactional.id", &id)
            .set("transaction.timeout.ms", "600000")
            .create()
            .expect("a producer");
        producer.init_transactions(PATIENCE).expect("init");
        producer.begin_transaction().expect("begin");
        Transaction { topic: self, id, producer }
    }

    fn send<'v, C: ProducerContext>(
        &self,
        producer: &impl Sends<C>,
        partition: i32,
        values: impl IntoIterator<Item = &'v str>,
    ) {
        for value in values {
            producer.send_one(BaseRecord::to(&self.name).partition(partition).key("k").payload(value));
        }
    }
}

fn padded(number: usize, size: usize) -> String {
    let mut text = number.to_string();
    text.extend(std::iter::repeat_n(' ', size.saturating_sub(text.len())));
    text
}

/// What both kinds of producers can do.
pub(crate) trait Sends<C> {
    fn send_one(&self, record: BaseRecord<'_, str, str>);
}

impl Sends<Counting> for ThreadedProducer<Counting> {
    fn send_one(&self, record: BaseRecord<'_, str, str>) {
        let mut record = record;
        while let Err((error, unsent)) = self.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(rdkafka::error::RDKafkaErrorCode::QueueFull));
            self.flush(PATIENCE).expect("flush");
            record = unsent;
        }
    }
}

impl Sends<rdkafka::producer::DefaultProducerContext> for BaseProducer {
    fn send_one(&self, record: BaseRecord<'_, str, str>) {
        self.send(record).map_err(|(error, _)| error).expect("send");
    }
}

/// An open transaction.
pub(crate) struct Transaction<'t> {
    topic: &'t Topic,
    id: String,
    producer: BaseProducer,
}

impl Transaction<'_> {
    pub(crate) fn write<'v>(self, partition: i32, values: impl IntoIterator<Item = &'v str>) -> Self {
        self.topic.send(&self.producer, partition, values);
        self.producer.flush(PATIENCE).expect("flush");
        self
    }

    pub(crate) fn write_at(self, partition: i32, timestamps: impl IntoIterator<Item = i64>) -> Self {
        for timestamp in timestamps {
            let record = BaseRecord::<str, str>::to(&self.topic.name).partition(partition).payload("v");
            self.producer.send(record.timestamp(timestamp)).map_err(|(error, _)| error).expect("send");
        }
        self.producer.flush(PATIENCE).expect("flush");
        self
    }

    /// Returns whose it is, and since when, as Kafka's own tool tells it. Only on the shared broker.
    pub(crate) fn told(&self) -> OpenTransaction {
        let words = ["--bootstrap-server", &self.topic.bootstrap, "describe", "--transactional-id", &self.id];
        let kafka = Kafka::shared().expect("a broker");
        let mut tool = kafka.tool("org.apache.kafka.tools.TransactionsCommand", words).expect("the tool");
        let printed = String::from_utf8(tool.output().expect("output").stdout).expect("a text");
        let mut lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let told: BTreeMap<&str, &str> = names.into_iter().zip(values).collect();
        let number = |name: &str| told[name].parse().unwrap_or_else(|_| panic!("{name} in {printed}"));
        let since = Some(Timestamp(number("CurrentTransactionStartTimeMs")));
        OpenTransaction { producer_id: number("ProducerId"), since }
    }

    pub(crate) fn commit(self) {
        self.producer.commit_transaction(PATIENCE).expect("commit");
        self.wait_for_marker();
    }

    /// Commits it while others are open.
    pub(crate) fn commit_unseen(self) {
        self.producer.commit_transaction(PATIENCE).expect("commit");
    }

    pub(crate) fn abort(self) {
        self.producer.abort_transaction(PATIENCE).expect("abort");
        self.wait_for_marker();
    }

    /// The coordinator answers before it has written the markers. Only one transaction of a test ends at a time, so the
    /// last stable offset then meets the high watermark.
    fn wait_for_marker(&self) {
        let high = |isolation: &str| {
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", &self.topic.bootstrap)
                .set("isolation.level", isolation)
                .create()
                .expect("a consumer");
            move |topic: &str| consumer.fetch_watermarks(topic, 0, PATIENCE).expect("watermarks").1
        };
        let (stable, all) = (high("read_committed"), high("read_uncommitted"));
        let is_over = || stable(&self.topic.name) == all(&self.topic.name);
        levada_testcontainers::wait_until(PATIENCE, "the transaction's marker", is_over).expect("in time");
    }
}

/// Fails the test when a record was not stored.
pub(crate) struct Counting;

impl rdkafka::ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            eprintln!("a record was not stored: {error}");
            std::process::abort();
        }
    }
}

/// Keeps the offset of the record that was stored last.
#[derive(Default)]
pub(crate) struct Told(AtomicI64);

impl rdkafka::ClientContext for Told {}

impl ProducerContext for Told {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let stored = result.as_ref().expect("stored");
        self.0.store(stored.offset(), Ordering::SeqCst);
    }
}

pub(crate) fn plain_producer(bootstrap: &str) -> ThreadedProducer<Counting> {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("message.max.bytes", "100000000")
        .set("queue.buffering.max.kbytes", "1000000")
        .set("linger.ms", "5")
        // A batch that is tried again must not come behind the next one.
        .set("max.in.flight.requests.per.connection", "1")
        .create_with_context(Counting)
        .expect("a producer")
}

pub(crate) fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client")
}

/// An open source with the one budget it needs, and what was read so far.
pub(crate) struct Reading {
    pub(crate) source: KafkaSource,
    pub(crate) assignment: Option<Assignment>,
    pub(crate) builder: BatchBuilder,
    /// Offset and value of every record, by split, in the order of reading.
    pub(crate) records: BTreeMap<SplitId, Vec<(u64, String)>>,
    pub(crate) positions: Positions,
    pub(crate) ends: BTreeMap<SplitId, u64>,
    /// How splits stood, each with the number of records read before it.
    pub(crate) news: Vec<(usize, SplitId, SplitEvent)>,
    pub(crate) is_over: bool,
}

impl Reading {
    pub(crate) async fn open(config: KafkaSourceConfig) -> Reading {
        Reading::open_as(config, 0, 1).await
    }

    pub(crate) async fn open_as(config: KafkaSourceConfig, subtask: u32, parallelism: u32) -> Reading {
        Reading::open_with(config, subtask, parallelism, Budget::new(64 << 20)).await
    }

    pub(crate) async fn open_with(
        config: KafkaSourceConfig,
        subtask: u32,
        parallelism: u32,
        budget: Budget,
    ) -> Reading {
        let mut source = KafkaSource::new(config).expect("a configuration that works");
        let ctx = SourceContext { subtask, parallelism, budget };
        source.open(ctx).await.expect("open");
        Reading {
            source,
            assignment: None,
            builder: BatchBuilder::new(),
            records: BTreeMap::new(),
            positions: Positions::new(),
            ends: BTreeMap::new(),
            news: Vec::new(),
            is_over: false,
        }
    }

    /// Polls once, and adds what was assigned at its configured start.
    pub(crate) async fn poll(&mut self) -> Result<Polled, SourceError> {
        let polled = self.try_poll().await?;
        self.note(&polled);
        Ok(polled)
    }

    /// The same, but leaves what was appended in the builder.
    pub(crate) async fn poll_raw(&mut self) -> Polled {
        self.try_poll().await.expect("poll")
    }

    async fn try_poll(&mut self) -> Result<Polled, SourceError> {
        let polled =
            tokio::time::timeout(PATIENCE, self.source.poll(&mut self.builder)).await.expect("in time")?;
        if let Polled::Assigned(assignment) = &polled {
            self.source.add(starts(assignment))?;
        }
        Ok(polled)
    }

    /// Takes what a poll appended.
    pub(crate) fn note(&mut self, polled: &Polled) {
        match polled {
            Polled::Batch => {
                let (batch, moved) = self.builder.finish();
                self.take(&batch, moved);
            }
            Polled::Assigned(assignment) => self.assignment = Some(assignment.clone()),
            Polled::EndOfSplit(split, end) => {
                self.ends.insert(split.clone(), end.next);
            }
            Polled::News(news) => {
                let (batch, moved) = self.builder.finish();
                self.take(&batch, moved);
                let count = self.count();
                self.news.extend(news.iter().map(|(split, event)| (count, split.clone(), *event)));
            }
            Polled::End => self.is_over = true,
            _ => {}
        }
    }

    /// Takes a batch.
    pub(crate) fn take(&mut self, batch: &Batch<()>, moved: Positions) {
        for record in batch.records() {
            let value = batch.value(&record.origin).unwrap_or_default();
            let text = String::from_utf8_lossy(value).trim_end().to_owned();
            let split = batch.split(&record.origin).clone();
            self.records.entry(split).or_default().push((record.origin.offset, text));
        }
        self.positions.merge(moved);
    }

    /// Polls until the condition holds, looking at it also while nothing comes.
    pub(crate) async fn until_either(&mut self, mut is_done: impl FnMut(&Reading) -> bool) {
        let started = std::time::Instant::now();
        while !is_done(self) {
            let status = self.source.status();
            assert!(started.elapsed() < PATIENCE, "in time: {status:?}");
            let look = Duration::from_millis(50);
            if let Ok(polled) = tokio::time::timeout(look, self.source.poll(&mut self.builder)).await {
                let polled = polled.expect("poll");
                if let Polled::Assigned(assignment) = &polled {
                    self.source.add(starts(assignment)).expect("add");
                }
                self.note(&polled);
            }
        }
    }

    /// Polls until the condition holds.
    pub(crate) async fn until(&mut self, mut is_done: impl FnMut(&Reading) -> bool) {
        while !is_done(self) {
            self.poll().await.expect("poll");
        }
    }

    /// Polls to the end of a bounded read.
    pub(crate) async fn read_to_end(mut self) -> Reading {
        self.until(|reading| reading.is_over).await;
        self.source.close().await;
        self
    }

    pub(crate) fn values(&self, split: &SplitId) -> Vec<&str> {
        self.records.get(split).into_iter().flatten().map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn offsets(&self, split: &SplitId) -> Vec<u64> {
        self.records.get(split).into_iter().flatten().map(|(offset, _)| *offset).collect()
    }

    /// Returns what was told of a split, in order.
    pub(crate) fn told(&self, split: &SplitId) -> Vec<SplitEvent> {
        self.news.iter().filter(|(_, of, _)| of == split).map(|(.., event)| *event).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    pub(crate) fn position(&self, split: &SplitId) -> Option<u64> {
        self.positions.get(split).map(|position| position.next)
    }

    pub(crate) fn stream(&self) -> (Arc<str>, StreamId) {
        let stream = &self.assignment.as_ref().expect("assigned").streams[0];
        (Arc::clone(&stream.stream), stream.id.clone())
    }
}

/// Returns the configured start of each assigned split.
pub(crate) fn starts(assignment: &Assignment) -> Vec<(SplitId, Position)> {
    let mut starts = Vec::new();
    for stream in &assignment.streams {
        let split = |index| SplitId { stream: Arc::clone(&stream.stream), index };
        starts.extend(stream.splits.iter().map(|start| (split(start.index), start.start.clone())));
    }
    starts.retain(|(split, _)| assignment.splits.contains(split));
    starts
}
