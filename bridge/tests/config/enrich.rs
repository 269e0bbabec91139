//! The part about lookups.

use std::time::Duration;

use levada::config::{CachePart, Found, Miss, Rows, StepOrder};

use super::{mistakes, read};

fn pipeline(mode: &str, enrich: &str) -> String {
    format!(
        "name: p\nsource: {{kafka: {{brokers: a:1, topics: x, format: json}}}}\nsink: {{postgres: {{url: 'host=h', table: t, {mode}}}}}\n\
         enrich:\n{enrich}"
    )
}

const UPSERT: &str = "mode: upsert, key: {from: value, columns: id}";

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

/// [BRG-01] [LKP-01] a step names a table or a query, what is compared with what, and what is added.
#[test]
fn every_field_of_a_lookup_is_read() {
    let steps = "
  - name: airline
    postgres:
      url: host=other
      schema: s
      table: airlines
      key: {iata: carrier, country: home}
      cache: {rows: 100, after_write: 10min, after_access: 1min, missing: 5s}
      preload: 1h
      invalidated_by: airlines_changed
    fields: {airline: name}
    miss: drop
    absent: miss
    order: ordered
    timeout: 2s
    batch: 7
    in_flight: 3
  - name: plane
    postgres: {query: 'select model from planes where tailnum = :tail', parameters: {tail: tailnum}, rows: one}
    fields: [model]
";
    let pipeline = read(&pipeline(UPSERT, steps)).expect("a pipeline");
    let [airline, plane] = &*pipeline.enrich else { panic!("two steps") };
    assert_eq!((&*airline.name, &*airline.url), ("airline", "host=other"));
    let table = Found::Table {
        schema: Some("s".to_owned()),
        table: "airlines".to_owned(),
        key: pairs([("iata", "carrier"), ("country", "home")]),
    };
    assert_eq!((&airline.found, airline.rows), (&table, Rows::First));
    assert_eq!(airline.fields, pairs([("airline", "name")]));
    assert_eq!((airline.miss, airline.is_absent_null), (Miss::Drop, true));
    assert_eq!(airline.order, StepOrder::Ordered);
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let cache =
        CachePart { rows: 100, after_write: seconds(600), after_access: seconds(60), missing: seconds(5) };
    assert_eq!((airline.cache, airline.preload), (Some(cache), seconds(3600)));
    assert_eq!(airline.invalidated_by.as_deref(), Some("airlines_changed"));
    assert_eq!((airline.timeout, airline.batch, airline.in_flight), (Duration::from_secs(2), 7, 3));

    let text = "select model from planes where tailnum = :tail".to_owned();
    assert_eq!(plane.found, Found::Query { text, parameters: pairs([("tail", "tailnum")]) });
    assert_eq!(plane.fields, pairs([("model", "model")]));
    assert_eq!(plane.url, pipeline.sink.url);
    assert_eq!((plane.rows, plane.order, plane.is_absent_null), (Rows::One, StepOrder::Ordered, false));
    assert_eq!((plane.timeout, plane.batch, plane.in_flight), (Duration::from_secs(5), 500, 16));
    assert_eq!((plane.cache, plane.preload), (None, None));
}

/// [BRG-01] each mistake with line and field.
#[test]
fn mistakes_about_lookups_are_told() {
    let steps = "
  - postgres: {table: t, query: q, key: a}
    fields: {}
    miss: null_
  - name: a
    postgres: {table: t, preload: 0s, invalidated_by: c}
    timeout: 0s
    batch: 0
  - name: b
    postgres: {query: q, key: a, schema: s, preload: 1s}
    fields: a
  - name: c
    postgres: {table: t, key: k, parameters: k, cache: {row: 1}, url: 'a b'}
    fields: [a, a]
";
    let told = mistakes(&pipeline(UPSERT, steps));
    let expected = [
        "p.yaml:6: enrich[0].name: missing; expected the step's name",
        "p.yaml:6: enrich[0].postgres: needs either \"table\" or \"query\"",
        "p.yaml:7: enrich[0].fields: must name at least one",
        "p.yaml:8: enrich[0].miss: \"null_\" is not one of nulls, drop, fail",
        "p.yaml:9: enrich[1].fields: missing; expected what is added: {field: column}, or a list of columns",
        "p.yaml:10: enrich[1].postgres: \"table\" needs \"key\": {column: field}, or a list of columns",
        "p.yaml:10: enrich[1].postgres.preload: must be more than nothing",
        "p.yaml:11: enrich[1].timeout: must be more than nothing",
        "p.yaml:12: enrich[1].batch: \"0\" is not a whole number of at least 1",
        "p.yaml:14: enrich[2].postgres.key: goes with \"table\" only",
        "p.yaml:14: enrich[2].postgres.schema: goes with \"table\" only",
        "p.yaml:14: enrich[2].postgres: \"query\" needs \"parameters\": {parameter: field}, or a list",
        "p.yaml:14: enrich[2].postgres.preload: a query cannot be read whole; \"preload\" needs \"table\"",
        "p.yaml:17: enrich[3].postgres.url: the connection string is no valid postgres:// URL or list of key=value pairs (not \
         shown here, it may hold a password)",
        "p.yaml:17: enrich[3].postgres.parameters: goes with \"query\" only; a table has \"key\"",
        "p.yaml:17: enrich[3].postgres.cache.rows: missing; expected the most rows that are kept",
        "p.yaml:17: enrich[3].postgres.cache.row: unknown field; did you mean \"rows\"?",
        "p.yaml:18: enrich[3].fields: \"a\" is named twice",
    ];
    assert_eq!(told, expected);
}

/// What would overwrite what another step found, or keep an older change, is refused.
#[test]
fn contradictions_of_lookups_are_told() {
    let one = |name: &str, field: &str, more: &str| {
        format!("  - {{name: {name}, postgres: {{table: t, key: a}}, fields: {{{field}: x}}{more}}}\n")
    };
    let told = |mode: &str, steps: &str| mistakes(&pipeline(mode, steps)).concat();
    let same = one("a", "f", "") + &one("a", "f", "");
    let both = told(UPSERT, &same);
    assert!(
        both.contains("two steps are named \"a\"") && both.contains("two steps add the field \"f\""),
        "{both}"
    );
    let unordered = one("a", "f", ", order: unordered");
    assert!(told(UPSERT, &unordered).contains("enrich[0].order: \"unordered\" lets an older change"));
    assert!(read(&pipeline("mode: insert", &unordered)).is_ok());
    let per_key = one("a", "f", ", order: per_key");
    assert!(told(UPSERT, &per_key).contains("enrich[0].order: \"per_key\" goes by the record's key"));
    let by_record = "mode: upsert, key: {from: record_key, format: text, columns: id}";
    let read_step = |step: &str| read(&pipeline(by_record, step)).expect("a pipeline").enrich.remove(0);
    assert_eq!(read_step(&per_key).order, StepOrder::PerKey);
    assert_eq!(read_step(&one("a", "f", "")).order, StepOrder::PerKey);
    let only = "  - {name: a, postgres: {table: t, key: a, rows: one}, fields: f, miss: nulls}\n";
    assert!(told(UPSERT, only).contains("enrich[0].miss: goes with \"rows: first\" only"));
    let idle = "  - {name: a, postgres: {table: t, key: a, invalidated_by: c}, fields: f}\n";
    assert!(told(UPSERT, idle).contains("invalidated_by: does nothing without \"cache\" or \"preload\""));
}

/// [PGS-38] the connection string may hold a password.
#[test]
fn debug_output_of_a_lookup_shows_no_secret() {
    let step = "  - {name: a, postgres: {url: 'postgres://me:hunter2@h/d', table: t, key: a}, fields: f}\n";
    let pipeline = read(&pipeline(UPSERT, step)).expect("a pipeline");
    assert!(!format!("{pipeline:?}").contains("hunter2"));
}
