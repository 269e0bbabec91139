//! A broker as a test sees it, through another client: librdkafka.

mod clients;
mod observe;

use std::time::Duration;

use clients::kafka::{PATIENCE, acknowledged, at, config, consumed, create_topic};
use levada_testcontainers::{Error, Kafka, unique_name, wait_until};
use observe::is_alive;
use rdkafka::consumer::{BaseConsumer, Consumer};

/// Makes a topic of a name that nobody else has.
fn new_topic(bootstrap: &str, prefix: &str) -> String {
    let topic = unique_name(prefix);
    create_topic(&at(bootstrap), &topic, &[1], &[]);
    topic
}

fn produce(bootstrap: &str, topic: &str, payload: &str) {
    let sent = acknowledged(&at(bootstrap), topic, [payload.to_owned()], PATIENCE);
    assert_eq!(sent, [payload]);
}

fn answers(bootstrap: &str, patience: Duration) -> bool {
    let consumer: BaseConsumer = config(&at(bootstrap)).create().unwrap();
    consumer.fetch_metadata(None, patience).is_ok()
}

/// [TST-01] The part of [TST-04] that one broker can show: kill -9, stop; then the same data and port.
#[test]
fn a_record_survives_every_end_and_restart() {
    let kafka = Kafka::start().unwrap();
    let topic = new_topic(kafka.bootstrap(), "survivors");
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
    assert_eq!(consumed(&at(kafka.bootstrap()), &topic), ["before the kill", "before the stop"]);
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
#[test]
fn properties_of_the_builder_reach_the_broker() {
    let kafka = Kafka::builder().property("auto.create.topics.enable", "true").start().unwrap();
    let strict = Kafka::start().unwrap();
    let topic = unique_name("made_by_asking");
    let created = |bootstrap: &str, patience: Duration| {
        let creating: BaseConsumer =
            config(&at(bootstrap)).set("allow.auto.create.topics", "true").create().unwrap();
        wait_until(patience, "the topic", || {
            let metadata = creating.fetch_metadata(Some(&topic), PATIENCE).unwrap();
            metadata.topics()[0].error().is_none()
        })
    };
    created(kafka.bootstrap(), PATIENCE).unwrap();
    created(strict.bootstrap(), Duration::from_secs(1)).unwrap_err();
}

/// [TST-01] A group with a session of 600 ms is accepted, as tests of rebalances need.
#[test]
fn short_sessions_are_accepted() {
    let kafka = Kafka::shared().unwrap();
    let topic = new_topic(kafka.bootstrap(), "short");
    let consumer: BaseConsumer = config(&at(kafka.bootstrap()))
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
#[test]
fn the_console_consumer_of_the_same_jars_reads_the_shared_broker() {
    let kafka = Kafka::shared().unwrap();
    let topic = new_topic(kafka.bootstrap(), "console");
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
        let consumer: BaseConsumer = config(&at(kafka.bootstrap())).create().unwrap();
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
#[test]
#[ignore = "fetches another version; ./check --long runs it"]
fn a_chosen_version_is_started() {
    let kafka = Kafka::builder().version("4.1.1").start().unwrap();
    assert!(kafka.logs().contains("Kafka version: 4.1.1"), "{}", kafka.logs());
    let topic = new_topic(kafka.bootstrap(), "older");
    produce(kafka.bootstrap(), &topic, "read me");
    assert_eq!(consumed(&at(kafka.bootstrap()), &topic), ["read me"]);
}
