//! A broker as a test sees it, through another client: librdkafka.

mod observe;

use std::time::Duration;

use levada_testcontainers::{Error, Kafka, unique_name, wait_until};
use observe::is_alive;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(30);

async fn create_topic(bootstrap: &str, topic: &str) -> Result<(), String> {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap).create().unwrap();
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
    let results =
        admin.create_topics([&new], &AdminOptions::new()).await.map_err(|error| error.to_string())?;
    results.into_iter().next().unwrap().map(|_| ()).map_err(|(_, code)| code.to_string())
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("reconnect.backoff.max.ms", "200");
    config
}

fn produce(bootstrap: &str, topic: &str, payload: &str) {
    let producer: BaseProducer = config(bootstrap).set("acks", "all").create().unwrap();
    producer.send(BaseRecord::<(), str>::to(topic).payload(payload)).unwrap();
    producer.flush(PATIENCE).unwrap();
    assert_eq!(producer.in_flight_count(), 0);
}

/// The payloads of a topic from its beginning, as many as are expected.
fn consume(bootstrap: &str, topic: &str, count: usize) -> Vec<String> {
    let consumer: BaseConsumer = config(bootstrap).set("group.id", unique_name("group")).create().unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut payloads = Vec::new();
    wait_until(PATIENCE, "the records", || {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            payloads.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
        }
        payloads.len() == count
    })
    .unwrap();
    payloads
}

fn answers(bootstrap: &str, patience: Duration) -> bool {
    let consumer: BaseConsumer = config(bootstrap).create().unwrap();
    consumer.fetch_metadata(None, patience).is_ok()
}

/// [TST-01] The part of [TST-04] that one broker can show: kill -9, stop; then the same data and port.
#[tokio::test]
async fn a_record_survives_every_end_and_restart() {
    let kafka = Kafka::start().unwrap();
    let topic = unique_name("survivors");
    create_topic(kafka.bootstrap(), &topic).await.unwrap();
    let before = kafka.broker(1).pid().unwrap();

    produce(kafka.bootstrap(), &topic, "before the kill");
    kafka.kill();
    assert!(!is_alive(before));
    assert_eq!(kafka.broker(1).pid(), None);
    assert!(!answers(kafka.bootstrap(), Duration::from_millis(500)));
    kafka.restart().unwrap();
    assert_ne!(kafka.broker(1).pid().unwrap(), before);
    produce(kafka.bootstrap(), &topic, "before the stop");
    kafka.stop().unwrap();
    kafka.restart().unwrap();
    assert_eq!(consume(kafka.bootstrap(), &topic, 2), ["before the kill", "before the stop"]);
}

/// [TST-04] Here only: stop and continue.
#[test]
fn a_paused_broker_answers_nothing_until_it_goes_on() {
    let kafka = Kafka::start().unwrap();
    kafka.pause().unwrap();
    assert!(!answers(kafka.bootstrap(), Duration::from_millis(700)));
    kafka.resume().unwrap();
    assert!(answers(kafka.bootstrap(), PATIENCE));
    kafka.kill();
    assert!(matches!(kafka.pause(), Err(Error::NotRunning { server: "Kafka" })));
}

/// [TST-01]
#[tokio::test]
async fn properties_of_the_builder_reach_the_broker() {
    let kafka = Kafka::builder().property("auto.create.topics.enable", "true").start().unwrap();
    let strict = Kafka::start().unwrap();
    let topic = unique_name("made_by_asking");
    let created = |bootstrap: &str, patience: Duration| {
        let creating: BaseConsumer =
            config(bootstrap).set("allow.auto.create.topics", "true").create().unwrap();
        wait_until(patience, "the topic", || {
            let metadata = creating.fetch_metadata(Some(&topic), PATIENCE).unwrap();
            metadata.topics()[0].error().is_none()
        })
    };
    created(kafka.bootstrap(), PATIENCE).unwrap();
    created(strict.bootstrap(), Duration::from_secs(1)).unwrap_err();
}

/// [TST-01] A group with a session of 600 ms is accepted, as tests of rebalances need.
#[tokio::test]
async fn short_sessions_are_accepted() {
    let kafka = Kafka::shared().unwrap();
    let topic = unique_name("short");
    create_topic(kafka.bootstrap(), &topic).await.unwrap();
    let consumer: BaseConsumer = config(kafka.bootstrap())
        .set("group.id", unique_name("group"))
        .set("session.timeout.ms", "600")
        .set("heartbeat.interval.ms", "200")
        .create()
        .unwrap();
    consumer.subscribe(&[&topic]).unwrap();
    wait_until(PATIENCE, "the assignment", || {
        consumer.poll(Duration::from_millis(50));
        consumer.assignment().unwrap().count() == 1
    })
    .unwrap();
}

/// [TST-01] Another client reads back what was written: Kafka's own.
#[tokio::test]
async fn the_console_consumer_of_the_same_jars_reads_the_shared_broker() {
    let kafka = Kafka::shared().unwrap();
    let topic = unique_name("console");
    create_topic(kafka.bootstrap(), &topic).await.unwrap();
    produce(kafka.bootstrap(), &topic, "read me");
    let arguments = [
        "--bootstrap-server",
        kafka.bootstrap(),
        "--topic",
        &topic,
        "--from-beginning",
        "--max-messages",
        "1",
    ];
    let mut tool = kafka.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments).unwrap();
    let output = tool.output().unwrap();
    assert!(output.status.success(), "{}", observe::printed(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "read me\n");
}

/// [TST-01]
#[test]
fn callers_in_one_process_share_one_broker() {
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| Kafka::shared().unwrap());
        (Kafka::shared().unwrap(), other.join().unwrap())
    });
    assert_eq!(first.bootstrap(), second.bootstrap());
    assert!(answers(first.bootstrap(), PATIENCE));
}

/// [TST-01] Positions of one cluster must never be taken for those of another.
#[test]
fn every_broker_is_a_cluster_of_its_own() {
    let cluster = |kafka: &Kafka| {
        let consumer: BaseConsumer = config(kafka.bootstrap()).create().unwrap();
        consumer.client().fetch_cluster_id(PATIENCE).unwrap()
    };
    let (first, second) = (Kafka::start().unwrap(), Kafka::start().unwrap());
    assert_ne!(cluster(&first), cluster(&second));
}

/// [TST-01]
#[test]
fn a_bad_property_fails_the_start_with_the_broker_s_words() {
    let error = Kafka::builder().property("num.io.threads", "many").start().unwrap_err();
    assert!(matches!(error, Error::EndedEarly { .. }));
    assert!(error.to_string().contains("num.io.threads"), "{error}");
}

/// [TST-01] The settings for benchmarks start too.
#[test]
fn a_broker_for_throughput_serves_clients() {
    let kafka = Kafka::builder().for_throughput().heap("1g").start().unwrap();
    assert!(answers(kafka.bootstrap(), PATIENCE));
}

/// [TST-01] Another version than the default one.
#[tokio::test]
#[ignore = "fetches another version; ./check --long runs it"]
async fn a_chosen_version_is_started() {
    let kafka = Kafka::builder().version("4.1.1").start().unwrap();
    assert!(kafka.logs().contains("Kafka version: 4.1.1"), "{}", kafka.logs());
    let topic = unique_name("older");
    create_topic(kafka.bootstrap(), &topic).await.unwrap();
    produce(kafka.bootstrap(), &topic, "read me");
    assert_eq!(consume(kafka.bootstrap(), &topic, 1), ["read me"]);
}
