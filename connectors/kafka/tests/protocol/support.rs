//! Topics, transactions that were left behind, and readers for the tests of this binary.

use std::time::Duration;

use levada_kafka::protocol::{
    Described, Identity, ProtocolClient, ProtocolConfig, State, TransactionAdmin as _, TransactionKey,
};
use levada_testcontainers::{Kafka, unique_name, wait_until};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// Long enough for a busy machine; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The time-out of a transaction that is not to time out.
pub(crate) const LONG: Duration = Duration::from_secs(600);

pub(crate) fn shared() -> String {
    Kafka::shared().expect("a broker").bootstrap().to_owned()
}

pub(crate) fn config(bootstrap: &str) -> ProtocolConfig {
    ProtocolConfig::from_properties([("bootstrap.servers", bootstrap)]).expect("a configuration")
}

pub(crate) fn client(bootstrap: &str) -> ProtocolClient {
    ProtocolClient::new(config(bootstrap)).expect("a client")
}

/// Makes a topic and returns its name.
pub(crate) async fn topic(bootstrap: &str, partitions: i32) -> String {
    let name = unique_name("protocol");
    make_topic(bootstrap, &name, partitions).await;
    name
}

pub(crate) async fn make_topic(bootstrap: &str, name: &str, partitions: i32) {
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
    let admin = admin(bootstrap);
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.expect("create topics");
    made.into_iter().for_each(|made| drop(made.expect("create the topic")));
    // A broker hears of a new topic a moment after it was made, and of the end of one with its name, too.
    let is_known = || {
        let told = admin.inner().fetch_metadata(Some(name), PATIENCE).expect("metadata");
        let topic = &told.topics()[0];
        let led = topic
            .partitions()
            .iter()
            .filter(|partition| partition.error().is_none() && partition.leader() >= 0);
        topic.error().is_none() && led.count() == partitions as usize
    };
    wait_until(PATIENCE, "the broker knows the topic", is_known).expect("in time");
}

pub(crate) fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client")
}

/// Fails the test when a record was not stored.
pub(crate) struct Strict;

impl rdkafka::ClientContext for Strict {}

impl ProducerContext for Strict {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            eprintln!("a record was not stored: {error}");
            std::process::abort();
        }
    }
}

pub(crate) type Writer = BaseProducer<Strict>;

/// Makes a producer with an initialised id.
pub(crate) fn writer(bootstrap: &str, id: &str, timeout: Duration) -> Writer {
    let producer: Writer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", id)
        .set("transaction.timeout.ms", timeout.as_millis().to_string())
        .create_with_context(Strict)
        .expect("a producer");
    producer.init_transactions(PATIENCE).expect("init");
    producer
}

/// Begins a transaction and writes into it until all is stored.
pub(crate) fn write(producer: &Writer, topic: &str, records: &[(i32, &str)]) {
    producer.begin_transaction().expect("begin");
    for (partition, value) in records {
        let record = BaseRecord::<str, str>::to(topic).partition(*partition).payload(value);
        producer.send(record).map_err(|(error, _)| error).expect("send");
    }
    producer.flush(PATIENCE).expect("flush");
    assert_eq!(producer.in_flight_count(), 0);
}

/// Leaves a transaction behind, as a process does that is killed: the producer is gone, the transaction is open.
pub(crate) fn leave_open(bootstrap: &str, id: &str, topic: &str, records: &[(i32, &str)]) {
    write(&writer(bootstrap, id, LONG), topic, records);
}

/// Returns what readers of committed records see of a partition.
pub(crate) fn committed(bootstrap: &str, topic: &str, partition: i32) -> Vec<String> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", unique_name("reader"))
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .create()
        .expect("a consumer");
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
    consumer.assign(&from).expect("assign");
    let mut values = Vec::new();
    wait_until(PATIENCE, "the end of the partition", || match consumer.poll(Duration::from_millis(50)) {
        Some(Ok(message)) => {
            values.push(String::from_utf8(message.payload().expect("a value").to_vec()).expect("a text"));
            false
        }
        Some(Err(KafkaError::PartitionEOF(_))) => true,
        _ => false,
    })
    .expect("in time");
    values
}

/// Describes one id.
pub(crate) async fn described(client: &ProtocolClient, id: &str) -> Option<Described> {
    let mut all = client.describe(&[id], PATIENCE).await.expect("describe");
    all.remove(id).expect("an answer for the id")
}

/// Asks until an id is in a state.
pub(crate) async fn until_state(client: &ProtocolClient, id: &str, state: State) -> Described {
    let asked = async {
        loop {
            match described(client, id).await {
                Some(described) if described.state == state => return described,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("in time")
}

pub(crate) fn key(transactional_id: &str, identity: Identity) -> TransactionKey<'_> {
    TransactionKey { transactional_id, producer_id: identity.producer_id, epoch: identity.epoch }
}

/// Prints an error and its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told += &format!(": {error}");
        cause = error.source();
    }
    told
}
