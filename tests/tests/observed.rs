//! What can be seen of a running bridge: its metrics over HTTP, its log, and records that it passes over.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use levada_testcontainers::{Database, Kafka, Postgres, SharedKafka, unique_name, wait_until};
use levada_tests::bridge::{Bridge, BridgeCommand, PATIENCE};
use levada_tests::topic::Topic;
use nix::sys::signal::Signal;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

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
        database.psql("CREATE TABLE t (id int PRIMARY KEY, at bigint)").expect("a table");
        Self { kafka, topic, database }
    }

    /// Returns a pipeline from the topic into the table; `source` holds lines below `source.kafka`.
    fn pipeline(&self, source: &str, rest: &str) -> String {
        format!(
            "name: test\nsource:\n  kafka:\n    brokers: {}\n    topics: {}\n    format: json\n{source}\
             sink:\n  postgres:\n    url: {}\n    table: t\n    key: {{from: value, columns: id}}\n{rest}",
            self.kafka.bootstrap(),
            self.topic.name,
            self.database.url(),
        )
    }

    fn rows(&self) -> String {
        self.database.psql("SELECT count(*) FROM t").expect("SQL").trim().to_owned()
    }

    /// Begins a transaction with a record in a partition, which nobody may read before its end.
    fn open_transaction(&self, partition: i32) -> BaseProducer {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.kafka.bootstrap())
            .set("transactional.id", unique_name("tx"))
            .set("transaction.timeout.ms", "600000")
            .create()
            .expect("a producer");
        producer.init_transactions(PATIENCE).expect("init");
        producer.begin_transaction().expect("begin");
        let record: BaseRecord<'_, str, str> =
            BaseRecord::to(&self.topic.name).partition(partition).payload("{\"id\": 1000, \"at\": 1000}");
        producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
        producer.flush(PATIENCE).expect("the broker takes the record");
        producer
    }
}

/// Where a bridge says that its metrics are.
fn address_of(bridge: &mut Bridge) -> String {
    bridge.wait_for_log("metrics at http://");
    let log = bridge.log();
    let (_, after) = log.split_once("metrics at http://").expect("waited for");
    after.split_once('/').expect("a path").0.to_owned()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Waits for a scrape that shows each of these.
#[track_caller]
fn wait_for(address: &str, samples: &[String]) -> String {
    let mut last = String::new();
    let found = wait_until(PATIENCE, "the metrics", || {
        last = get(address, "/metrics");
        samples.iter().all(|sample| last.lines().any(|line| line == sample))
    });
    assert!(found.is_ok(), "waited for {samples:#?}, found\n{last}");
    last
}

/// One sample: its name, its labels and its value.
fn parsed(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (name, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = name.split_once('{').expect("labels");
    let labels = labels.strip_suffix('}').expect("the end of the labels").split("\",");
    let labels = labels.map(|label| {
        let (name, value) = label.split_once("=\"").expect("a label");
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    });
    (name.to_owned(), labels.collect(), value.parse().expect("a number"))
}

fn value(scrape: &str, sample: &str) -> f64 {
    let line = scrape.lines().find(|line| line.starts_with(sample));
    parsed(line.unwrap_or_else(|| panic!("no {sample} in\n{scrape}"))).2
}

/// [TIM-05] [TIM-06] [TIM-21] [SRC-33] in part, on the real bridge: of three partitions one is empty and one is behind an
/// open transaction. The first is idle, the second is blocked and says why, and holds the watermark. All of that is in
/// the metrics and in the log, without a value of a row; and the metrics are those of the table in the documentation.
#[test]
fn an_empty_and_a_blocked_partition_are_seen_with_their_reasons() {
    let setting = Setting::new(3);
    setting.topic.send(Some(0), None, Some("{\"id\": 1, \"at\": 1356998400000}"));
    setting.topic.send(Some(0), None, Some("{\"id\": 2, \"at\": null}"));
    setting.topic.send(Some(0), None, Some("{\"id\": 3, \"at\": \"secret-value\""));
    setting.topic.send(Some(2), None, Some("{\"id\": 4, \"at\": 1356998300000}"));
    setting.topic.flush();
    let open = setting.open_transaction(2);
    let rest = "event_time: {from: field, field: at, unit: ms, without: record}\n\
                watermark: {bound: 10s, every: 50ms, idle_after: 200ms}\n\
                http: 127.0.0.1:0\nlog: {every: 200ms}\n";
    let source = "    poison: skip\n    properties: {statistics.interval.ms: '100'}\n";
    let pipeline = setting.pipeline(source, rest);
    let mut bridge = BridgeCommand::new(LEVADA, &pipeline).start();
    let address = address_of(&mut bridge);
    let of = |name: &str, partition: u32, more: &str, value: &str| {
        let topic = &setting.topic.name;
        format!(
            "levada_partition_{name}{{pipeline=\"test\",topic=\"{topic}\",partition=\"{partition}\"{more}}} {value}"
        )
    };
    let scrape = wait_for(
        &address,
        &[
            of("status", 0, ",status=\"idle\",reason=\"\"", "1"),
            of("status", 1, ",status=\"idle\",reason=\"\"", "1"),
            of("status", 2, ",status=\"blocked\",reason=\"open_transaction\"", "1"),
            of("position", 0, "", "3"),
            of("committed_position", 0, "", "3"),
            of("lag_records", 0, "", "0"),
            of("lag_seconds", 0, "", "0.0"),
            of("high_watermark", 2, "", "2"),
            of("last_stable_offset", 2, "", "1"),
            of("lag_records", 2, "", "1"),
            of("stable_lag_records", 2, "", "0"),
            // 10 s and 1 ms before the only record that may be read.
            of("watermark_timestamp_seconds", 2, "", "1356998289.999"),
            "levada_watermark_timestamp_seconds{pipeline=\"test\"} 1356998289.999".to_owned(),
            "levada_source_records_without_timestamp_total{pipeline=\"test\",subtask=\"0\",outcome=\"taken_from_record\"} 1"
                .to_owned(),
            "levada_read_records_total{pipeline=\"test\"} 4".to_owned(),
            "levada_committed_records_total{pipeline=\"test\",outcome=\"written\"} 3".to_owned(),
            "levada_committed_records_total{pipeline=\"test\",outcome=\"skipped\"} 1".to_owned(),
        ],
    );
    // The client tells of itself now and then, and batches have waited for the sink, if only for a moment.
    let counted = ["source_client_received_bytes", "source_batches", "source_batch_wait_seconds"];
    let counted = counted.map(|name| format!("levada_{name}_total{{pipeline=\"test\",subtask=\"0\"}}"));
    let is_counted = || {
        let scrape = get(&address, "/metrics");
        counted.iter().all(|sample| scrape.contains(sample.as_str()) && value(&scrape, sample) > 0.0)
    };
    wait_until(PATIENCE, "the counts of the client and of batches", is_counted).expect("counts");
    // The source says so after it has looked twice.
    let waited = of("behind_transaction_seconds", 2, "", "");
    let is_told = || value(&get(&address, "/metrics"), &waited) > 0.0;
    wait_until(PATIENCE, "the time behind the transaction", is_told).expect("a time");
    assert!(value(&scrape, &of("lag_seconds", 2, "", "")) >= 0.0);
    assert!(value(&scrape, &of("spent_seconds", 1, ",state=\"idle\"", "")) > 0.0);
    assert!(scrape.contains("content-type: application/openmetrics-text"), "{scrape}");
    assert!(get(&address, "/other").starts_with("HTTP/1.1 404 "), "nothing else is served");
    is_documented(&scrape);

    bridge.wait_for_log("blocked (behind an open transaction, at 1 of 2, producer ");
    bridge.wait_for_log("2 idle, 1 blocked");
    open.abort_transaction(PATIENCE).expect("an end of the transaction");
    wait_for(&address, &[of("status", 2, ",status=\"idle\",reason=\"\"", "1"), of("position", 2, "", "3")]);

    bridge.signal(Signal::SIGTERM);
    let log = bridge.finish().expect_code(0).log;
    assert!(log.contains("4 read = 3 written + 1 skipped"), "{log}");
    assert!(log.contains("@2") && log.contains("a record is skipped"), "the log names it:\n{log}");
    for text in
        ["event time", "field \"at\"", "takes Kafka's timestamp and is counted", "is skipped and counted"]
    {
        assert!(log.contains(text), "no {text:?} in the start-up block:\n{log}");
    }
    assert!(!format!("{log}{scrape}").contains("secret-value"), "{log}");
    assert_eq!(setting.rows(), "3");
}

/// [TIM-17] [TIM-06] the bridge's own `max_drift`: the partition that runs ahead rests, and is said to; what is written to it
/// meanwhile is not in the table, though it stood at the broker before what is. It goes on when the other one has come after it.
#[test]
fn a_partition_that_runs_ahead_of_max_drift_rests_until_the_other_one_comes_after() {
    let setting = Setting::new(2);
    let send = |partition: i32, numbers: &[u32]| {
        for number in numbers {
            let record = format!("{{\"id\": {}{number}, \"at\": {number}000}}", partition + 1);
            setting.topic.send(Some(partition), None, Some(&record));
        }
        setting.topic.flush();
    };
    let rows = |expected: &str| {
        let arrived = wait_until(PATIENCE, "the rows", || setting.rows() == expected);
        assert!(arrived.is_ok(), "expected {expected} rows, found {}", setting.rows());
    };
    let rest = "event_time: {from: field, field: at, unit: ms}\n\
                watermark: {bound: 0s, every: 20ms, idle_after: 1h, max_drift: 10s}\nhttp: 127.0.0.1:0\n";
    let mut bridge = BridgeCommand::new(LEVADA, &setting.pipeline("", rest)).start();
    let address = address_of(&mut bridge);
    let status = |partition: u32, status: &str, reason: &str| {
        let topic = &setting.topic.name;
        format!(
            "levada_partition_status{{pipeline=\"test\",topic=\"{topic}\",partition=\"{partition}\",status=\"{status}\",\
             reason=\"{reason}\"}} 1"
        )
    };
    send(0, &[1000]);
    send(1, &[1000, 5000]);
    rows("3");
    wait_for(&address, &[status(0, "caught_up", ""), status(1, "blocked", "drift")]);
    send(1, &[5001, 5002]);
    send(0, &[1001, 1002, 1003]);
    rows("6");
    assert_eq!(
        setting
            .database
            .psql("SELECT count(*) FROM t WHERE id > 20000 AND at > 5000000")
            .expect("SQL")
            .trim(),
        "0",
        "what the partition ahead holds is not read"
    );
    let scrape = wait_for(&address, &[status(1, "blocked", "drift")]);
    let topic = &setting.topic.name;
    let rested = format!(
        "levada_partition_spent_seconds{{pipeline=\"test\",topic=\"{topic}\",partition=\"1\",state=\"paused\"}}"
    );
    assert!(value(&scrape, &rested) > 0.0, "{scrape}");
    send(0, &[4995]);
    rows("9");
    wait_for(&address, &[status(0, "caught_up", ""), status(1, "caught_up", "")]);
    bridge.signal(Signal::SIGTERM);
    bridge.finish().expect_code(0);
}

/// The table of metrics in the documentation, and what is served: the same names, kinds and labels.
fn is_documented(scrape: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let text = std::fs::read_to_string(file).expect("the documentation");
    let rows = text.lines().filter(|line| line.starts_with("| `levada_"));
    let documented: BTreeMap<String, (String, BTreeSet<String>)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), labels))
        })
        .collect();
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let served = types.map(|(name, kind)| match kind {
        "counter" => (format!("{name}_total"), kind.to_owned()),
        _ => (name.to_owned(), kind.to_owned()),
    });
    let of_table = documented.iter().map(|(name, (kind, _))| (name.clone(), kind.clone()));
    assert_eq!(
        served.collect::<BTreeMap<_, _>>(),
        of_table.collect(),
        "docs/operations.md and what is served"
    );
    let samples: Vec<_> = scrape.lines().filter(|line| line.starts_with("levada_")).map(parsed).collect();
    assert!(samples.len() > 40, "{scrape}");
    for (name, labels, _) in samples {
        let labels: BTreeSet<_> = labels.into_keys().filter(|label| label != "pipeline").collect();
        assert_eq!(labels, documented[&name].1, "labels of {name}");
    }
}

/// Without watermarks a partition's status is what the source knows, and there is no word of time.
#[test]
fn without_watermarks_metrics_are_served_all_the_same() {
    let setting = Setting::new(2);
    setting.topic.send(Some(0), None, Some("{\"id\": 1, \"at\": 5}"));
    setting.topic.send(Some(1), None, Some("{\"id\": 2, \"at\": 5}"));
    setting.topic.flush();
    let open = setting.open_transaction(1);
    let mut bridge = BridgeCommand::new(LEVADA, &setting.pipeline("", "http: 127.0.0.1:0\n")).start();
    let address = address_of(&mut bridge);
    let status = |partition: u32, status: &str, reason: &str| {
        let topic = &setting.topic.name;
        format!(
            "levada_partition_status{{pipeline=\"test\",topic=\"{topic}\",partition=\"{partition}\",status=\"{status}\",\
             reason=\"{reason}\"}} 1"
        )
    };
    let samples = [status(0, "caught_up", ""), status(1, "blocked", "open_transaction")];
    let scrape = wait_for(&address, &samples);
    assert!(!scrape.contains("watermark_timestamp_seconds{"), "{scrape}");
    open.abort_transaction(PATIENCE).expect("an end of the transaction");
}

/// [SRC-24] policy `skip`: passed over, counted, and the balance closes over two runs.
#[test]
fn skipped_poison_is_counted_and_the_balance_closes() {
    let setting = Setting::new(1);
    for number in 0..10 {
        setting.topic.send(None, None, Some(&format!("{{\"id\": {number}}}")));
    }
    for poison in ["{\"id\": 10", "[]", "{\"n\": 1}"] {
        setting.topic.send(None, None, Some(poison));
    }
    setting.topic.send(None, None, Some("{\"id\": 11}"));
    setting.topic.flush();
    let pipeline = setting.pipeline("    poison: skip\n", "");
    let finished = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(0);
    assert_eq!(finished.out, "balance: 14 read = 11 written + 3 skipped\n");
    for offset in 10..13 {
        assert!(finished.log.contains(&format!("-0@{offset}")), "{}", finished.log);
    }
    assert_eq!(setting.rows(), "11");
    let again = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(0);
    assert_eq!(again.out, "balance: 0 read = 0 written\n");
}

/// [SRC-24] what `skip` is for is what cannot be decoded: a row that the table refuses still stops the bridge.
#[test]
fn a_row_that_the_table_refuses_is_not_skipped() {
    let setting = Setting::new(1);
    setting.topic.send(None, None, Some("{\"id\": 1, \"at\": true}"));
    setting.topic.flush();
    let pipeline = setting.pipeline("    poison: skip\n", "");
    let finished = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(4);
    assert!(finished.log.contains("-0@0"), "{}", finished.log);
    assert_eq!(setting.rows(), "0");
}

/// [TIM-03] policy `fail`: a field that is absent, null or of a wrong kind stops the bridge; the message names the record
/// and how to go on, again after a restart.
#[test]
fn a_record_without_an_event_time_stops_the_bridge_and_says_how_to_go_on() {
    for value in ["{\"id\": 1}", "{\"id\": 1, \"at\": null}", "{\"id\": 1, \"at\": \"secret-value\"}"] {
        let setting = Setting::new(1);
        setting.topic.send(None, None, Some("{\"id\": 0, \"at\": 5}"));
        setting.topic.send(None, None, Some(value));
        setting.topic.flush();
        let rest = "event_time: {from: field, field: at, unit: ms}\nwatermark: {bound: 0s}\n";
        for _ in 0..2 {
            let bridge = BridgeCommand::new(LEVADA, &setting.pipeline("", rest));
            let log = bridge.until_now().run().expect_code(4).log;
            assert!(log.contains("-0@1 has no timestamp") && log.contains("without: record"), "{log}");
            assert!(!log.contains("secret-value"), "{log}");
        }
        assert_eq!(setting.rows(), "0");
    }
}

/// Who cannot be watched as he was told to is not started, and says what to change.
#[test]
fn a_port_that_is_in_use_is_one_clear_message() {
    let setting = Setting::new(1);
    setting.topic.send(None, None, Some("{\"id\": 1}"));
    setting.topic.flush();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let pipeline = setting.pipeline("", &format!("http: {address}\n"));
    let log = BridgeCommand::new(LEVADA, &pipeline).until_now().run().expect_code(2).log;
    let expected = format!("metrics cannot be served at {address}; name another address by \"http\"");
    assert!(log.contains(&expected) && log.contains("in use"), "{log}");
    assert!(!log.contains("claimed"), "{log}");
    assert_eq!(setting.rows(), "0");
}
