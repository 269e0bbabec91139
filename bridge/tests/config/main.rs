//! The pipeline file: what is read, and how mistakes are told.

mod enrich;

use std::path::Path;
use std::time::Duration;

use levada::config::{
    ConfigErrors, DEFAULT_HTTP, DEFAULT_LOG_EVERY, EventTimePart, KeyFormat, KeyFrom, Pipeline, Poison,
    StartFrom, TableMode, TimeField, TimeFrom, Tombstones, Unit, WatermarkPart, WithoutTime, load, parse,
};

fn read(text: &str) -> Result<Pipeline, ConfigErrors> {
    parse(Path::new("p.yaml"), text)
}

fn mistakes(text: &str) -> Vec<String> {
    read(text).expect_err("must be refused").to_string().lines().map(str::to_owned).collect()
}

const FULL: &str = "
name: flights
source:
  kafka:
    brokers: [a:1, b:2]
    topics: [x, y.z]
    format: json
    start: latest
    poison: skip
    properties: {fetch.wait.max.ms: 100}
sink:
  postgres:
    url: postgres://localhost/db
    schema: s
    table: t.u
    mode: upsert
    key: {from: record_key, format: delimited, delimiter: '|', columns: [a, b]}
    tombstones: delete
    columns:
      updated: {unit: ms, assume_utc: true}
    lock_timeout: 3s
parallelism: 4
memory: 1GiB
commit: {rows: 7, bytes: 2KiB, age: 5min}
event_time: {from: field, field: t.x, unit: ms, assume_utc: true, without: record}
watermark: {bound: 30s, every: 1s, idle_after: 1min, max_drift: 1h}
http: 0.0.0.0:81
log: {every: 3s}
";

/// [BRG-01] the file's part: source and one table. Transforms, dead letters and the schema for editors come
/// later.
#[test]
fn every_field_is_read() {
    let pipeline = read(FULL).expect("a pipeline");
    assert_eq!(pipeline.source.brokers, ["a:1", "b:2"]);
    assert_eq!(pipeline.source.topics, ["x", "y.z"]);
    assert_eq!(pipeline.source.start, StartFrom::Latest);
    assert_eq!(pipeline.source.properties["fetch.wait.max.ms"], "100");
    assert_eq!((pipeline.sink.schema.as_deref(), &*pipeline.sink.table), (Some("s"), "t.u"));
    assert_eq!((pipeline.sink.mode, pipeline.sink.tombstones), (TableMode::Upsert, Tombstones::Delete));
    let columns = vec!["a".to_owned(), "b".to_owned()];
    let format = KeyFormat::Delimited("|".to_owned());
    assert_eq!(pipeline.sink.key, Some(KeyFrom::RecordKey { columns, format }));
    let updated = &pipeline.sink.columns["updated"];
    assert_eq!((updated.unit, updated.assume_utc), (Some(Unit::Millis), true));
    assert_eq!(pipeline.sink.lock_timeout, Some(Duration::from_secs(3)));
    assert_eq!((pipeline.parallelism, pipeline.memory), (4, 1 << 30));
    let commit = pipeline.commit;
    assert_eq!((commit.max_rows, commit.max_bytes, commit.max_age), (7, 2048, Duration::from_secs(300)));
    assert_eq!(pipeline.source.poison, Poison::Skip);
    let field = TimeField { name: "t.x".to_owned(), unit: Some(Unit::Millis), assume_utc: true };
    let time = EventTimePart { from: TimeFrom::Field(field), without: WithoutTime::TakeRecord };
    assert_eq!(pipeline.event_time, time);
    let watermark = WatermarkPart {
        bound: Duration::from_secs(30),
        every: Duration::from_secs(1),
        idle_after: Some(Duration::from_secs(60)),
        max_drift: Some(Duration::from_secs(3600)),
    };
    assert_eq!(pipeline.watermark, Some(watermark));
    assert_eq!(pipeline.http, Some(([0, 0, 0, 0], 81).into()));
    assert_eq!(pipeline.log_every, Duration::from_secs(3));
}

/// The pipeline that the README shows is read, and has the defaults that it tells.
#[test]
fn pipeline_of_the_readme_is_read_and_its_defaults_are_true() {
    let readme = include_str!("../../../README.md");
    let (_, after) = readme.split_once("```yaml\n").expect("a pipeline in the README");
    let (shown, _) = after.split_once("```").expect("its end");
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "hunter2\n").expect("a password");
    let shown = shown.replace("/run/secrets/password", &secret.path().display().to_string());
    let pipeline = read(&shown).expect("a pipeline");
    assert_eq!(pipeline.sink.url, "postgres://app:hunter2@localhost/warehouse");
    assert_eq!(pipeline.sink.columns["updated_at"].unit, Some(Unit::Millis));
    assert_eq!((pipeline.source.start, pipeline.sink.mode), (StartFrom::Earliest, TableMode::Upsert));
    assert_eq!((pipeline.parallelism, pipeline.memory), (1, 256 << 20));
    assert_eq!(pipeline.commit, levada_engine::CommitPolicy::default());
}

#[test]
fn every_bad_item_of_a_list_is_told() {
    let told =
        mistakes("name: p\nsource: {kafka: {brokers: ['', a, ''], topics: x, format: json}}\n").concat();
    assert!(told.contains("brokers[0]: must not") && told.contains("brokers[2]: must not"), "{told}");
}

#[test]
fn defaults_are_those_of_the_readme() {
    let pipeline = read(
        "name: p\nsource: {kafka: {brokers: a:1, topics: x, format: json}}\n\
         sink: {postgres: {url: 'host=h', table: t, key: {from: value, columns: id}}}",
    )
    .expect("a pipeline");
    assert_eq!(pipeline.source.start, StartFrom::Earliest);
    assert_eq!((pipeline.sink.mode, pipeline.sink.tombstones), (TableMode::Upsert, Tombstones::Ignore));
    assert_eq!((pipeline.parallelism, pipeline.memory), (1, 256 << 20));
    let commit = pipeline.commit;
    assert_eq!(
        (commit.max_rows, commit.max_bytes, commit.max_age),
        (10_000, 16 << 20, Duration::from_millis(200))
    );
    assert_eq!((pipeline.source.poison, pipeline.watermark), (Poison::Fail, None));
    assert_eq!(pipeline.event_time, EventTimePart::default());
    assert!(DEFAULT_HTTP.ip().is_loopback());
    assert_eq!((pipeline.http, pipeline.log_every), (Some(DEFAULT_HTTP), DEFAULT_LOG_EVERY));
}

/// [BRG-01] all errors at once, in the order of the lines, each with file, line, field and what was expected.
#[test]
fn every_mistake_is_told_with_line_and_field() {
    let told = mistakes(
        "nam: p
source:
  kafka:
    brokers: []
    topics: {a: b}
    format: xml
sink:
  postgres:
    url: 'host=h'
    table: ''
    mode: replace
    key: {from: value}
    columns: {a: {unit: h}, b: {unitt: s}}
parallelism: 0
memory: 5
commit: {age: 3, row: 9}
",
    );
    let expected = [
        "p.yaml:1: name: missing; expected the pipeline's name",
        "p.yaml:1: nam: unknown field; did you mean \"name\"?",
        "p.yaml:4: source.kafka.brokers: must name at least one",
        "p.yaml:5: source.kafka.topics: expected a single value, found a section",
        "p.yaml:6: source.kafka.format: \"xml\" is not one of json",
        "p.yaml:10: sink.postgres.table: must not be empty",
        "p.yaml:11: sink.postgres.mode: \"replace\" is not one of upsert, insert",
        "p.yaml:12: sink.postgres.key.columns: missing; expected the key's columns",
        "p.yaml:13: sink.postgres.columns.a.unit: \"h\" is not one of s, ms, us, ns",
        "p.yaml:13: sink.postgres.columns.b.unitt: unknown field; did you mean \"unit\"?",
        "p.yaml:14: parallelism: \"0\" is not a whole number of at least 1",
        "p.yaml:15: memory: \"5\" is not a size such as 512KiB, 16MiB or 1GiB",
        "p.yaml:16: commit.age: \"3\" is not a duration such as 200ms, 5s, 10min or 1h",
        "p.yaml:16: commit.row: unknown field; did you mean \"rows\"?",
    ];
    assert_eq!(told, expected);
}

#[test]
fn contradictions_are_told() {
    let sink = |lines: &str| {
        let head = "name: p\nsource: {kafka: {brokers: a:1, topics: x, format: json}}\nsink:\n  postgres:\n";
        let text = format!("{head}    url: host=h\n    table: t\n{lines}");
        mistakes(&text).concat()
    };
    assert!(sink("    mode: upsert\n").contains("upsert needs \"key\""));
    assert!(sink("    mode: insert\n    tombstones: delete\n").contains("needs \"mode: upsert\""));
    let by_value = "    key: {from: value, columns: id}\n    tombstones: delete\n";
    assert!(sink(by_value).contains("a tombstone has no value to take it from"));
    let two_of_text = "    key: {from: record_key, format: text, columns: [a, b]}\n";
    assert!(sink(two_of_text).contains("exactly one column"));
    let no_delimiter = "    key: {from: record_key, format: delimited, columns: [a, b]}\n";
    assert!(sink(no_delimiter).contains("needs \"delimiter\""));
    assert!(sink("    key: {from: coordinates, columns: [a, b]}\n").contains("exactly three columns"));
}

/// [BRG-01] the parts about time, poison, metrics and the log: each mistake with line and field.
#[test]
fn mistakes_about_time_and_watching_are_told() {
    let head = "name: p\nsource: {kafka: {brokers: a:1, topics: x, format: json, poison: drop}}\n\
                sink: {postgres: {url: host=h, table: t, mode: insert}}\n";
    let told = mistakes(&format!(
        "{head}event_time: {{from: field, unit: h, without: skip}}
watermark: {{every: 0s, idle_after: 0s, bond: 3s}}
http: localhost
log: {{every: 0ms}}
"
    ));
    let expected = [
        "p.yaml:2: source.kafka.poison: \"drop\" is not one of fail, skip",
        "p.yaml:4: event_time.field: missing; expected the field that holds the time",
        "p.yaml:4: event_time.unit: \"h\" is not one of s, ms, us, ns",
        "p.yaml:4: event_time.without: \"skip\" is not one of fail, record",
        "p.yaml:5: watermark.bound: missing; expected how much older than the newest record of its partition a record may be",
        "p.yaml:5: watermark.every: must be more than nothing",
        "p.yaml:5: watermark.idle_after: must be more than nothing",
        "p.yaml:5: watermark.bond: unknown field; did you mean \"bound\"?",
        "p.yaml:6: http: \"localhost\" is neither \"off\" nor an address with a port such as 127.0.0.1:9464, 0.0.0.0:9464 or \
         \"[::1]:9464\"",
        "p.yaml:7: log.every: must be more than nothing",
    ];
    assert_eq!(told, expected);
}

/// What would have no effect, or keep a pipeline waiting for ever, is refused.
#[test]
fn contradictions_about_time_are_told() {
    let with = |lines: &str| {
        let head = "name: p\nsource: {kafka: {brokers: a:1, topics: x, format: json}}\n\
                    sink: {postgres: {url: host=h, table: t, mode: insert}}\n";
        mistakes(&format!("{head}{lines}")).concat()
    };
    assert!(with("event_time: {from: record}\n").contains("does nothing without \"watermark\""));
    let watermark = "watermark: {bound: 1s}\n";
    let told = with(&format!("{watermark}event_time: {{field: at, unit: ms, assume_utc: true}}\n"));
    for field in ["field", "unit", "assume_utc"] {
        assert!(told.contains(&format!("event_time.{field}: goes with \"from: field\" only")), "{told}");
    }
    let told = with(&format!("{watermark}event_time: {{without: record}}\n"));
    assert!(told.contains("event_time.without: \"record\" needs \"from: field\""), "{told}");
    let told = with("watermark: {bound: 1s, max_drift: 1h}\n");
    assert!(told.contains("watermark.max_drift: needs \"idle_after\""), "{told}");
}

#[test]
fn metrics_can_be_switched_off() {
    let off = FULL.replace("http: 0.0.0.0:81", "http: off");
    assert_eq!(read(&off).expect("a pipeline").http, None);
}

/// [BRG-01] [SRC-10] [PGS-30] what the source or the sink would refuse stands in the file, too: told like any other
/// mistake, in the file's words.
#[test]
fn what_the_connectors_refuse_is_told_with_line_and_field() {
    let long = "x".repeat(64);
    let told = mistakes(&format!(
        "name: p
source:
  kafka:
    brokers: a:1
    topics: [x, y, x]
    format: json
    properties:
      auto.offset.reset: latest
      group.id: ''
      fetch.wait.max.ms: 100
sink:
  postgres:
    url: postgres://me:hunter2@h:port/d
    schema: \"a\\0b\"
    table: {long}
    key: {{from: value, columns: [id, id]}}
"
    ));
    let expected = [
        "p.yaml:5: source.kafka.topics: \"x\" is named twice".to_owned(),
        "p.yaml:8: source.kafka.properties.auto.offset.reset: not passed on; \"start\" says where to begin".to_owned(),
        "p.yaml:9: source.kafka.properties.group.id: not passed on; what is exactly once rests on it, or it is made of \
         the pipeline's name"
            .to_owned(),
        "p.yaml:13: sink.postgres.url: the connection string is no valid postgres:// URL or list of key=value pairs (not \
         shown here, it may hold a password)"
            .to_owned(),
        "p.yaml:14: sink.postgres.schema: identifier \"a\\0b\" holds a NUL character".to_owned(),
        format!("p.yaml:15: sink.postgres.table: identifier {long:?} has 64 bytes; Postgres keeps 63"),
        "p.yaml:16: sink.postgres.key.columns: \"id\" is named twice".to_owned(),
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_is_no_pipeline_file_is_told() {
    assert!(mistakes("a: [").concat().contains("not valid YAML"));
    assert!(mistakes("").concat().contains("the file is empty"));
    assert!(
        mistakes("name: a\nname: b\n")
            .concat()
            .contains("p.yaml:2: name: set twice; the first time in line 1")
    );
    assert!(mistakes("name: a\n---\nname: b\n").concat().contains("one file is one pipeline"));
    assert!(mistakes("just text").concat().contains("expected a section, found a single value"));
    let missing = load(Path::new("/no/such/file.yaml")).expect_err("no file");
    assert!(missing.to_string().contains("cannot read the file"), "{missing}");
}

/// [PGS-38] the connection string may hold a password.
#[test]
fn debug_output_shows_no_secret() {
    let text = FULL.replace("postgres://localhost/db", "postgres://me:hunter2@localhost/db");
    let pipeline = read(&text).expect("a pipeline");
    assert!(!format!("{pipeline:?}").contains("hunter2"));
}
