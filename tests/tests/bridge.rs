//! The bridge as a user runs it: files, exit codes, messages, tables.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use levada_testcontainers::{Database, Kafka, Postgres, SharedKafka};
use levada_tests::bridge::{BridgeCommand, PATIENCE};
use levada_tests::topic::Topic;
use nix::sys::signal::Signal;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

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

    /// Returns a pipeline from the topic into table `t`; `sink` holds the lines below the table.
    fn pipeline(&self, sink: &str, rest: &str) -> String {
        let sink: String = sink.lines().map(|line| format!("    {line}\n")).collect();
        format!(
            "name: test\nsource:\n  kafka:\n    brokers: {}\n    topics: {}\n    format: json\n\
             sink:\n  postgres:\n    url: {}\n    table: t\n{sink}{rest}\n",
            self.kafka.bootstrap(),
            self.topic.name,
            self.database.url(),
        )
    }

    fn sql(&self, sql: &str) -> String {
        self.database.psql(sql).expect("SQL").trim().to_owned()
    }

    fn send_numbers(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let value = format!("{{\"id\":{number},\"n\":{number}}}");
            self.topic.send(None, Some(&number.to_string()), Some(&value));
        }
        self.topic.flush();
    }
}

const BY_ID: &str = "key: {from: value, columns: id}";

/// [FMT-02] [PGS-25] [BRG-09] The quickstart's month: every flight, exact, with nulls where flights were cancelled, and
/// the same as an independent program makes of the same file.
#[test]
fn a_month_of_real_flights_equals_an_independent_count() {
    let setting = Setting::new(4);
    let file = Path::new(ROOT).join("examples/data/flights-2013-01.csv.gz");
    for flight in levada_examples::flights(&file).expect("flights") {
        setting.topic.send(None, Some(&flight.key), Some(&flight.value));
    }
    setting.topic.flush();
    let table =
        std::fs::read_to_string(Path::new(ROOT).join("examples/quickstart/flights.sql")).expect("SQL");
    setting.sql(&table);
    let pipeline = setting
        .pipeline("key: {from: value, columns: [carrier, flight, origin, flight_date]}", "parallelism: 2")
        .replace("table: t\n", "table: flights\n");
    let finished = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(0);
    assert_eq!(finished.out, "balance: 27004 read = 27004 written\n");

    let oracle =
        Command::new("python3").arg(Path::new(ROOT).join("tests/oracle/flights.py")).arg(&file).output();
    let expected = String::from_utf8(oracle.expect("python3").stdout).expect("text");
    let sql = std::fs::read_to_string(Path::new(ROOT).join("tests/oracle/flights.sql")).expect("SQL");
    assert_eq!(setting.sql(&sql), expected.trim());
    assert!(expected.starts_with("27004 "), "{expected}");

    // A second run has nothing to do: the positions are stored, past every record.
    let finished = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(0);
    assert_eq!(finished.out, "balance: 0 read = 0 written\n");
}

/// [PGS-10] [BRG-09] A month twice in one partition and one interval: half of the changes coalesce, exactly.
#[test]
fn repeated_keys_of_an_interval_coalesce_and_the_balance_says_so() {
    let setting = Setting::new(1);
    let file = Path::new(ROOT).join("examples/data/flights-2013-01.csv.gz");
    let flights = levada_examples::flights(&file).expect("flights");
    for flight in flights.iter().chain(&flights) {
        setting.topic.send(Some(0), Some(&flight.key), Some(&flight.value));
    }
    setting.topic.flush();
    let table =
        std::fs::read_to_string(Path::new(ROOT).join("examples/quickstart/flights.sql")).expect("SQL");
    setting.sql(&table);
    let pipeline = setting
        .pipeline(
            "key: {from: value, columns: [carrier, flight, origin, flight_date]}",
            "commit: {rows: 1000000, bytes: 1GiB, age: 10min}",
        )
        .replace("table: t\n", "table: flights\n");
    let finished = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(0);
    assert_eq!(finished.out, "balance: 54008 read = 27004 written + 27004 coalesced\n");
    assert_eq!(setting.sql("SELECT count(*) FROM flights"), "27004");
}

/// [BRG-01] the file's part: every error at once, each with file, line and field; nothing is started.
#[test]
fn unknown_key_in_the_pipeline_file_is_named_with_its_line() {
    let pipeline = "name: test\nsource:\n  kafka:\n    brokers: localhost:1\n    topic: x\n    format: avro\n\
                    sink:\n  postgres: {url: 'postgres://localhost', table: t}\n";
    let finished = BridgeCommand::new(LEVADA, pipeline).run().expect_code(2);
    let lines: Vec<&str> = finished.log.lines().collect();
    assert_eq!(lines.len(), 4, "{}", finished.log);
    let expect = |line: usize, text: &str| assert!(lines[line].contains(text), "{}", finished.log);
    expect(0, "pipeline.yaml:3: source.kafka.topics: missing");
    expect(1, "pipeline.yaml:5: source.kafka.topic: unknown field; did you mean \"topics\"?");
    expect(2, "pipeline.yaml:6: source.kafka.format: \"avro\" is not one of json");
    expect(3, "pipeline.yaml:8: sink.postgres: upsert needs \"key\"");
    let json = BridgeCommand::new(LEVADA, pipeline).arg("--log-format=json").run().expect_code(2).log;
    assert_eq!(json.lines().count(), 4, "{json}");
    let is_object = |line: &str| line.starts_with('{') && line.ends_with('}');
    assert!(json.lines().all(is_object) && json.contains("\"line\":8"), "{json}");
}

#[test]
fn missing_table_is_one_clear_message() {
    let setting = Setting::new(1);
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, "")).until_now().run().expect_code(3);
    assert!(finished.log.contains("there is no table \"t\""), "{}", finished.log);
}

/// A filter that cannot be read is not passed over: the lines are there, and one says so.
#[test]
fn filter_of_log_lines_that_cannot_be_read_is_told() {
    let setting = Setting::new(1);
    let bridge = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, "")).env("LEVADA_LOG", "levada=loud");
    let finished = bridge.until_now().run().expect_code(3);
    assert!(finished.log.contains("LEVADA_LOG is no filter: \"levada=loud\""), "{}", finished.log);
    assert!(finished.log.contains("there is no table"), "{}", finished.log);
}

/// [PGS-09]
#[test]
fn key_without_a_unique_index_is_one_clear_message() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (id int, n int); CREATE UNIQUE INDEX by_n ON t (n)");
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, "")).until_now().run().expect_code(3);
    assert!(
        finished.log.contains("by_n") && finished.log.contains("create unique index"),
        "{}",
        finished.log
    );
}

/// [SRC-02]
#[test]
fn missing_topic_is_one_clear_message() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n int)");
    let pipeline = setting.pipeline(BY_ID, "").replace(&setting.topic.name, "no-such-topic");
    let finished = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(3);
    assert!(
        finished.log.contains("no-such-topic") && finished.log.contains("does not exist"),
        "{}",
        finished.log
    );
}

/// [PGS-38] a password never shows, be it right or wrong.
#[test]
fn bad_password_is_one_clear_message_without_the_password() {
    let setting = Setting::new(1);
    let pipeline = setting.pipeline(BY_ID, "");
    let (before, after) = setting.database.url().split_once('@').expect("a URL with a password");
    let (user, _) = before.rsplit_once(':').expect("a URL with a password");
    let wrong = pipeline.replace(setting.database.url(), &format!("{user}:hunter2@{after}"));
    let finished = BridgeCommand::new(LEVADA, &wrong).until_now().run().expect_code(3);
    assert!(finished.log.contains("password authentication failed"), "{}", finished.log);
    assert!(!finished.log.contains("hunter2"), "{}", finished.log);
}

/// [SRC-24] [FMT-09] policy `fail`: coordinates and cause, no value; the same again after a restart; nothing of the
/// interval is visible; how to go on is said. Dead letters come later.
#[test]
fn poison_record_stops_the_bridge_with_its_coordinates() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n int)");
    setting.send_numbers(0..10);
    setting.topic.send(None, Some("x"), Some("{\"id\": 10, \"secret-value\""));
    setting.topic.flush();
    let place = format!("{}-0@10", setting.topic.name);
    for _ in 0..2 {
        let bridge = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, ""));
        let finished = bridge.until_now().run().expect_code(4);
        assert!(finished.log.contains(&place), "{}", finished.log);
        assert!(!finished.log.contains("secret-value"), "{}", finished.log);
        assert!(
            finished.log.contains("to go on, set \"poison: skip\" below source.kafka"),
            "{}",
            finished.log
        );
        assert_eq!(setting.sql("SELECT count(*) FROM t"), "0");
    }
}

/// [PGS-24] [PGS-38] a value that the column cannot hold: the record is named, its value is not.
#[test]
fn value_that_does_not_fit_stops_the_bridge_with_its_coordinates() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n smallint)");
    setting.send_numbers(0..3);
    setting.topic.send(None, Some("x"), Some("{\"id\": 3, \"n\": 77777}"));
    setting.topic.flush();
    let bridge = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, ""));
    let finished = bridge.until_now().run().expect_code(4);
    let place = format!("{}-0@3", setting.topic.name);
    assert!(finished.log.contains(&place) && finished.log.contains("\"n\""), "{}", finished.log);
    assert!(!finished.log.contains("77777"), "{}", finished.log);
}

/// [PGS-12]
#[test]
fn null_key_stops_the_bridge_with_its_coordinates() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n int)");
    setting.topic.send(None, None, Some("{\"n\": 1}"));
    setting.topic.flush();
    let sink = "key: {from: record_key, format: text, columns: id}";
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(sink, "")).until_now().run().expect_code(4);
    let place = format!("{}-0@0", setting.topic.name);
    assert!(finished.log.contains(&place) && finished.log.contains("key is null"), "{}", finished.log);
}

/// [PGS-08] [PGS-11] the record's key in each form, coordinates, headers are in the decoder's own tests; here: keys from
/// the record, and tombstones that delete.
#[test]
fn tombstones_delete_by_a_delimited_record_key() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (a text, b int, n int, PRIMARY KEY (b, a))");
    for (key, value) in [
        ("x|1", Some("{\"n\": 1}")),
        ("x|2", Some("{\"n\": 2}")),
        ("y|1", Some("{\"n\": 3}")),
        ("x|01", None),
        ("z|9", None),
    ] {
        setting.topic.send(None, Some(key), value);
    }
    setting.topic.flush();
    let sink =
        "key: {from: record_key, format: delimited, delimiter: '|', columns: [a, b]}\ntombstones: delete";
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(sink, "")).until_now().run().expect_code(0);
    assert_eq!(setting.sql("SELECT string_agg(concat(a, b, n), ' ' ORDER BY n) FROM t"), "x22 y13");
    // x|1 and x|01 are one key to an int column: the deletion replaces the insert of the same interval.
    assert_eq!(finished.out, "balance: 5 read = 2 written + 1 coalesced + 2 deleted\n");
}

/// [PGS-11] the default: ignored and counted.
#[test]
fn tombstones_are_ignored_and_counted_by_default() {
    let setting = Setting::new(1);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n int)");
    setting.send_numbers(0..2);
    setting.topic.send(None, Some("1"), None);
    setting.topic.flush();
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, "")).until_now().run().expect_code(0);
    assert_eq!(finished.out, "balance: 3 read = 2 written + 1 ignored\n");
    assert_eq!(setting.sql("SELECT count(*) FROM t"), "2");
}

/// [BRG-07] at start one block with guarantee, topics, table and positions; JSON lines by option; no row values.
#[test]
fn start_up_block_states_guarantee_topics_table_and_positions() {
    let setting = Setting::new(2);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n int)");
    setting.send_numbers(0..10);
    let pipeline = setting.pipeline(BY_ID, "");
    let human = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(0).log;
    for text in
        ["exactly once", "levada.positions", &setting.topic.name, "upsert by (id)", "claimed", "position=0"]
    {
        assert!(human.contains(text), "no {text:?} in\n{human}");
    }
    let json =
        BridgeCommand::new(LEVADA, &pipeline).until_now().arg("--log-format=json").run().expect_code(0).log;
    let mut lines = json.lines();
    assert!(lines.all(|line| line.starts_with('{') && line.ends_with('}')), "{json}");
    assert!(json.contains("\"guarantee\":\"exactly once"), "{json}");
}

#[test]
fn sigterm_commits_what_was_read() {
    let setting = Setting::new(2);
    setting.sql("CREATE TABLE t (id int PRIMARY KEY, n int)");
    setting.send_numbers(0..100);
    // The interval would stay open for ten minutes: only the stop commits it.
    let rest = "commit: {rows: 1000000, age: 10min}";
    let begun = Instant::now();
    let mut written = 0;
    let mut patience = Duration::from_millis(50);
    // What was read but not committed shows nowhere, so a bridge that was stopped too early is started again.
    while written == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing that was read was committed by the stop");
        let mut bridge = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, rest)).start();
        bridge.wait_for_log("claimed");
        assert!(!bridge.ends_within(patience), "the bridge ended by itself:\n{}", bridge.log());
        bridge.signal(Signal::SIGTERM);
        let finished = bridge.finish().expect_code(0);
        assert!(finished.log.contains("told to stop"), "{}", finished.log);
        written = setting.sql("SELECT count(*) FROM t").parse().expect("a count");
        let positions: u32 = setting.sql("SELECT sum(next) FROM levada.positions").parse().expect("a sum");
        assert_eq!(written, positions, "rows and positions are of one transaction");
        patience *= 2;
    }
    let finished = BridgeCommand::new(LEVADA, &setting.pipeline(BY_ID, "")).until_now().run().expect_code(0);
    assert_eq!(finished.out, format!("balance: {0} read = {0} written\n", 100 - written));
    assert_eq!(setting.sql("SELECT count(*), sum(n) FROM t"), "100|4950");
}
