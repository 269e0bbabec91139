//! The bridge with lookups on the way.

use std::path::Path;
use std::process::Command;

use levada_testcontainers::{Database, Kafka, Postgres, SharedKafka};
use levada_tests::bridge::BridgeCommand;
use levada_tests::flights::{january, load_tables, oracle, quickstart_file};
use levada_tests::topic::Topic;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");

struct Setting {
    kafka: SharedKafka,
    topic: Topic,
    database: Database,
}

impl Setting {
    fn new(partitions: i32) -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        let topic = Topic::create(kafka.bootstrap(), partitions);
        let database = Postgres::database().expect("a database");
        Self { kafka, topic, database }
    }

    /// Makes tables of colours and of things, whose last two have no colour of the table, or none at all.
    fn colours(self) -> Self {
        self.sql("CREATE TABLE colours (code int PRIMARY KEY, name text); INSERT INTO colours VALUES (1, 'red'), (2, 'blue')");
        self.sql("CREATE TABLE things (id int PRIMARY KEY, code int, colour text)");
        for value in [
            "{\"id\":1,\"code\":1}",
            "{\"id\":2,\"code\":\"2\"}",
            "{\"id\":3,\"code\":3}",
            "{\"id\":4,\"code\":null}",
        ] {
            self.topic.send(Some(0), Some("key"), Some(value));
        }
        self.topic.flush();
        self
    }

    /// A pipeline of things, with one step; `step` stands below its name.
    fn pipeline(&self, step: &str) -> String {
        format!(
            "name: test\nsource: {{kafka: {{brokers: '{}', topics: {}, format: json}}}}\n\
             enrich:\n  - name: colour\n{step}\n\
             sink: {{postgres: {{url: '{}', table: things, key: {{from: value, columns: id}}}}}}\n",
            self.kafka.bootstrap(),
            self.topic.name,
            self.database.url(),
        )
    }

    fn sql(&self, sql: &str) -> String {
        self.database.psql(sql).expect("SQL").trim().to_owned()
    }

    fn things(&self) -> String {
        self.sql("SELECT string_agg(id || ':' || coalesce(colour, '-'), ' ' ORDER BY id) FROM things")
    }
}

/// [LKP-01] [LKP-02] [BRG-16] the quickstart's own pipeline: each flight of a month with its airline, destination and plane, and
/// null where there is none, as an independent program finds them.
#[test]
fn month_of_flights_finds_airlines_destinations_and_planes() {
    let setting = Setting::new(4);
    for flight in january() {
        setting.topic.send(None, Some(&flight.key), Some(&flight.value));
    }
    setting.topic.flush();
    setting.sql(&quickstart_file("flights.sql"));
    load_tables(&setting.database);
    let pipeline = quickstart_file("flights.yaml")
        .replace("topics: flights", &format!("topics: {}", setting.topic.name));
    let finished = BridgeCommand::new(LEVADA, &pipeline)
        .env("QUICKSTART_KAFKA", setting.kafka.bootstrap())
        .env("QUICKSTART_POSTGRES", setting.database.url())
        .until_now()
        .run()
        .expect_code(0);
    assert_eq!(finished.out, "balance: 27004 read = 27004 written\n");

    let second = Command::new("python3").arg(Path::new("oracle/enriched.py")).output();
    let expected = String::from_utf8(second.expect("python3").stdout).expect("text");
    assert_eq!(setting.sql(&oracle("enriched.sql")), expected.trim());
    assert!(expected.starts_with("27004 680 "), "{expected}");
}

/// [LKP-01] [LKP-02] a text finds an integer; without a match, or with a null key, the field is null.
#[test]
fn row_without_a_match_has_nulls() {
    let setting = Setting::new(1).colours();
    let step = "    postgres: {table: colours, key: [code]}\n    fields: {colour: name}";
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(step)).until_now().run().expect_code(0);
    assert_eq!(setting.things(), "1:red 2:blue 3:- 4:-");
    assert!(finished.log.contains("colour from colours (null where none matches"), "{}", finished.log);
}

/// [LKP-02] dropped rows are counted: the balance closes.
#[test]
fn row_without_a_match_is_dropped_and_counted() {
    let setting = Setting::new(1).colours();
    let step = "    postgres: {query: 'select name from colours where code = :c', parameters: {c: code}}\n    \
                fields: {colour: name}\n    miss: drop";
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(step)).until_now().run().expect_code(0);
    assert_eq!(setting.things(), "1:red 2:blue");
    assert_eq!(finished.out, "balance: 4 read = 2 written + 2 filtered\n");
}

/// [LKP-02] [ASY-11] the pipeline stops at it, names the record, and nothing of its interval is visible.
#[test]
fn row_without_a_match_stops_the_pipeline_if_it_must_have_one() {
    let setting = Setting::new(1).colours();
    let step = "    postgres: {table: colours, key: [code]}\n    fields: {colour: name}\n    miss: fail";
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(step)).until_now().run().expect_code(4);
    let place = format!("{}-0@2", setting.topic.name);
    assert!(finished.log.contains(&place) && finished.log.contains("no row matches"), "{}", finished.log);
    assert_eq!(setting.sql("SELECT count(*) FROM things"), "0");
}

/// [LKP-01] what does not fit the server is told at the start, by step, before anything is written.
#[test]
fn lookup_that_does_not_fit_the_server_is_refused() {
    let setting = Setting::new(1).colours();
    let told = |step: &str| {
        let finished = BridgeCommand::new(LEVADA, &setting.pipeline(step)).until_now().run();
        assert_ne!(finished.expect_code(3).log, "");
    };
    told("    postgres: {table: nowhere, key: [code]}\n    fields: {colour: name}");
    told("    postgres: {table: colours, key: [kode]}\n    fields: {colour: name}");
    told("    postgres: {table: colours, key: [code]}\n    fields: {colour: nam}");
    assert_eq!(setting.sql("SELECT count(*) FROM things"), "0");
}

/// [ASY-06] [ASY-09] a call that is stuck ends at its timeout, with a commit point waiting behind it: the pipeline stops and says
/// why, nothing of the interval is visible, and the next start loses nothing.
#[test]
fn stuck_lookup_stops_the_pipeline_at_its_timeout() {
    let setting = Setting::new(1).colours();
    let step = |sleep: &str| {
        format!(
            "    postgres: {{query: 'select name from colours, {sleep} where code = :c', parameters: {{c: code}}}}\n    \
             fields: {{colour: name}}\n    timeout: 300ms"
        )
    };
    let stuck = setting.pipeline(&step("pg_sleep(600)"));
    let finished = BridgeCommand::new(LEVADA, &stuck).until_now().run().expect_code(1);
    assert!(finished.log.contains("within 300ms"), "{}", finished.log);
    assert!(finished.log.contains("a lookup had no answer in its time"), "{}", finished.log);
    assert_eq!(setting.sql("SELECT count(*) FROM things"), "0");
    let well = setting.pipeline(&step("pg_sleep(0)"));
    BridgeCommand::new(LEVADA, &well).until_now().run().expect_code(0);
    assert_eq!(setting.things(), "1:red 2:blue 3:- 4:-");
}
