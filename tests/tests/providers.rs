//! The same three tests for every provider: local processes, containers, and what somebody else runs.
//!
//! `LEVADA_PROVIDER` chooses; `./check` runs them three times.
#![cfg(feature = "failpoints")]

use levada_testcontainers::oracle::{self, exactly_once};
use levada_testcontainers::{Database, Kafka, Postgres, SharedKafka};
use levada_tests::bridge::BridgeCommand;
use levada_tests::topic::Topic;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");

/// A topic and a table of one test, on servers that it does not own.
struct Scene {
    kafka: SharedKafka,
    topic: Topic,
    database: Database,
}

impl Scene {
    fn new() -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        let topic = Topic::create(kafka.bootstrap(), 3);
        let database = Postgres::database().expect("a database");
        database.psql("CREATE TABLE numbers (n bigint)").expect("a table");
        Self { kafka, topic, database }
    }

    fn send(&self, numbers: std::ops::Range<u64>) {
        for n in numbers {
            self.topic.send(Some((n % 3) as i32), None, Some(&format!("{{\"n\":{n}}}")));
        }
        self.topic.flush();
    }

    fn bridge(&self) -> BridgeCommand {
        let (brokers, topic, url) = (self.kafka.bootstrap(), &self.topic.name, self.database.url());
        let pipeline = format!(
            "name: numbers\nsource:\n  kafka: {{brokers: '{brokers}', topics: {topic}, format: json}}\n\
             sink:\n  postgres: {{url: '{url}', table: numbers, mode: insert}}\n\
             commit: {{rows: 100, age: 20ms}}\n"
        );
        BridgeCommand::new(LEVADA, &pipeline).until_now()
    }

    /// The numbers in the topic, read with Kafka's own client.
    fn sent(&self) -> Vec<u64> {
        let contents = oracle::topic(self.kafka.bootstrap(), &self.topic.name).expect("the topic");
        let number = |record: &oracle::Record| {
            let value = record.value.as_ref().expect("a value").to_string();
            value.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
        };
        contents.committed.iter().map(number).collect()
    }

    fn written(&self) -> Vec<u64> {
        let rows = self.database.psql("SELECT n FROM numbers").expect("rows");
        rows.lines().map(|line| line.parse().expect("a number")).collect()
    }
}

/// [TST-02] A record and a row, through clients that know nothing of this crate.
#[test]
fn a_record_and_a_row_come_back_as_they_were_written() {
    let scene = Scene::new();
    scene.send(0..9);
    exactly_once(0..9, scene.sent()).unwrap();
    scene.database.psql("INSERT INTO numbers SELECT generate_series(0, 8)").expect("rows");
    exactly_once(0..9, scene.written()).unwrap();
}

/// [TST-02] [TST-07] The whole path: a topic into a table.
#[test]
fn the_bridge_writes_every_record_of_a_topic_once() {
    let scene = Scene::new();
    scene.send(0..3000);
    scene.bridge().run().expect_code(0);
    exactly_once(scene.sent(), scene.written()).unwrap();
    assert_eq!(scene.written().len(), 3000);
}

/// [TST-02] [PGS-03] The whole path, cut off in the middle and taken up again.
#[test]
fn a_bridge_that_was_killed_goes_on_where_it_was() {
    let scene = Scene::new();
    scene.send(0..1000);
    scene.bridge().run().expect_code(0);
    scene.send(1000..3000);
    let killed = scene.bridge().env("LEVADA_KILL_AT", "pg::commit::before_commit:1").run();
    assert_eq!(killed.code, None, "killed, and not ended by itself:\n{}", killed.log);
    exactly_once(0..1000, scene.written()).expect("nothing of the transaction that was open");
    scene.bridge().run().expect_code(0);
    exactly_once(scene.sent(), scene.written()).unwrap();
}
