//! From bytes to a keyed change: where keys come from, and what is refused.

use levada::config::{KeyFormat, KeyFrom};
use levada::decode::Decode;
use levada_core::batch::RawRecord;
use levada_core::{Batch, BatchBuilder, BoxError, Change, ErrorChain, Keyed, SplitId, Value};
use levada_engine::{FlatMap, Input, Outputs};

type Header<'a> = (&'a [u8], Option<&'a [u8]>);

fn record(key: Option<&str>, value: Option<&str>, headers: &[Header<'_>]) -> Batch<()> {
    let mut builder = BatchBuilder::new();
    let split = builder.split(&SplitId::new("topic", 3));
    let raw = RawRecord {
        offset: 42,
        key: key.map(str::as_bytes),
        value: value.map(str::as_bytes),
        ..RawRecord::default()
    };
    builder.push_with_headers(split, raw, headers.iter().copied());
    builder.finish().0
}

fn decode_with(decode: &mut Decode, batch: &Batch<()>) -> Result<Keyed, BoxError> {
    let mut outputs = Vec::new();
    let record = &batch.records()[0];
    decode.apply(Input::new(batch, record), &mut Outputs::new(record.origin, &mut outputs))?;
    assert_eq!(outputs.len(), 1);
    Ok(outputs.remove(0).item)
}

fn decode(key: KeyFrom, batch: &Batch<()>) -> Result<Keyed, BoxError> {
    decode_with(&mut Decode::new(Some(key)), batch)
}

fn refusal(key: KeyFrom, batch: &Batch<()>) -> String {
    let error = decode(key, batch).expect_err("must be refused");
    ErrorChain(&*error).to_string()
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn record_key(names: &[&str], format: KeyFormat) -> KeyFrom {
    KeyFrom::RecordKey { columns: columns(names), format }
}

/// Prints a row as `name=text`, which is enough to compare by.
fn print(row: &levada_core::Row) -> String {
    let text = |value: &Value| match value {
        Value::Text(text) | Value::Number(text) => text.as_str().to_owned(),
        Value::Int(number) => number.to_string(),
        other => other.class().to_owned(),
    };
    row.iter().map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(" ")
}

fn key_of(keyed: &Keyed) -> String {
    keyed.key.as_ref().map(print).unwrap_or_default()
}

fn row_of(keyed: &Keyed) -> String {
    match &keyed.change {
        Change::Upsert(row) => print(row),
        Change::Delete => "deleted".to_owned(),
    }
}

/// [PGS-08]
#[test]
fn key_comes_from_fields_of_the_value() {
    let batch = record(None, Some(r#"{"b":2,"a":"x"}"#), &[]);
    let keyed = decode(KeyFrom::Value { columns: columns(&["a", "b"]) }, &batch).expect("a change");
    assert_eq!((key_of(&keyed), row_of(&keyed)), ("a=x b=2".to_owned(), "b=2 a=x".to_owned()));
}

/// [PGS-08] a primitive key.
#[test]
fn key_is_the_text_of_the_record_key() {
    let batch = record(Some("k1"), Some(r#"{"n":1}"#), &[]);
    let keyed = decode(record_key(&["id"], KeyFormat::Text), &batch).expect("a change");
    assert_eq!((key_of(&keyed), row_of(&keyed)), ("id=k1".to_owned(), "n=1".to_owned()));
}

/// [PGS-08] a struct key, in any order.
#[test]
fn key_is_a_json_object_or_value() {
    let batch = record(Some(r#"{"x":1,"b":7,"a":"k"}"#), Some(r#"{"a":"v","n":1}"#), &[]);
    let keyed = decode(record_key(&["a", "b"], KeyFormat::Json), &batch).expect("a change");
    assert_eq!((key_of(&keyed), row_of(&keyed)), ("a=k b=7".to_owned(), "a=v n=1".to_owned()));
    let batch = record(Some("17"), Some(r#"{"n":1}"#), &[]);
    let keyed = decode(record_key(&["id"], KeyFormat::Json), &batch).expect("a change");
    assert_eq!(key_of(&keyed), "id=17");
}

/// [PGS-08] a delimited key.
#[test]
fn key_is_delimited_text() {
    let format = || KeyFormat::Delimited("::".to_owned());
    let batch = record(Some("a::b"), Some("{}"), &[]);
    let keyed = decode(record_key(&["x", "y"], format()), &batch).expect("a change");
    assert_eq!(key_of(&keyed), "x=a y=b");
    let batch = record(Some("a::b::c"), Some("{}"), &[]);
    assert!(refusal(record_key(&["x", "y"], format()), &batch).contains("3 parts"));
}

/// [PGS-08] Kafka coordinates.
#[test]
fn key_is_topic_partition_and_offset() {
    let names = ["t", "p", "o"].map(str::to_owned);
    let keyed = decode(KeyFrom::Coordinates { columns: names }, &record(None, Some(r#"{"n":1}"#), &[]));
    assert_eq!(key_of(&keyed.expect("a change")), "t=topic p=3 o=42");
}

/// [PGS-08] headers; the last one of a name counts.
#[test]
fn key_comes_from_headers() {
    let headers: [Header<'_>; 3] = [(b"h", Some(b"1")), (b"g", Some(b"x")), (b"h", Some(b"2"))];
    let from = || KeyFrom::Headers { columns: columns(&["h", "g"]) };
    let keyed = decode(from(), &record(None, Some("{}"), &headers)).expect("a change");
    assert_eq!(key_of(&keyed), "h=2 g=x");
    assert!(refusal(from(), &record(None, Some("{}"), &headers[..1])).contains("header is absent"));
    assert!(
        refusal(from(), &record(None, Some("{}"), &[(b"h", None), (b"g", None)])).contains("header is null")
    );
}

/// [PGS-12]
#[test]
fn missing_key_is_refused() {
    let by_value = || KeyFrom::Value { columns: columns(&["id"]) };
    assert!(refusal(by_value(), &record(None, Some(r#"{"n":1}"#), &[])).contains("field is absent"));
    assert!(refusal(by_value(), &record(None, Some(r#"{"id":null}"#), &[])).contains("field is null"));
    let text = || record_key(&["id"], KeyFormat::Text);
    assert!(refusal(text(), &record(None, Some("{}"), &[])).contains("key is null"));
    let json = || record_key(&["id"], KeyFormat::Json);
    assert!(refusal(json(), &record(Some("null"), Some("{}"), &[])).contains("key is null"));
    assert!(refusal(json(), &record(Some("{}"), Some("{}"), &[])).contains("key field is absent"));
}

/// [PGS-11] [FMT-08] the JSON part: no value, an empty one, and `null` are tombstones.
#[test]
fn absent_empty_and_null_values_are_tombstones() {
    for value in [None, Some(""), Some(" null\n")] {
        let keyed =
            decode(record_key(&["id"], KeyFormat::Text), &record(Some("k"), value, &[])).expect("a change");
        assert_eq!((key_of(&keyed), row_of(&keyed)), ("id=k".to_owned(), "deleted".to_owned()));
    }
    let by_value = KeyFrom::Value { columns: columns(&["id"]) };
    let keyed = decode(by_value, &record(None, None, &[])).expect("a change");
    assert_eq!(keyed, Keyed { key: None, change: Change::Delete });
}

/// [FMT-09] the reason is told, the value is not.
#[test]
fn what_is_no_object_is_refused_without_its_value() {
    for value in ["[1]", "\"hunter2\"", "{\"hunter2\"", "{}{}", "\u{1}"] {
        let refusal = refusal(record_key(&["id"], KeyFormat::Text), &record(Some("k"), Some(value), &[]));
        assert!(refusal.contains("not a JSON object") && !refusal.contains("hunter2"), "{refusal}");
    }
}

/// [FMT-01] rows of one shape share it.
#[test]
fn rows_of_one_shape_share_it() {
    let mut decode = Decode::new(Some(record_key(&["id"], KeyFormat::Text)));
    let mut shape = |value: &str| match decode_with(&mut decode, &record(Some("k"), Some(value), &[])) {
        Ok(Keyed { change: Change::Upsert(row), .. }) => std::sync::Arc::as_ptr(row.shape()),
        other => panic!("{other:?}"),
    };
    assert_eq!(shape(r#"{"a":1,"b":2}"#), shape(r#"{"a":3,"b":4}"#));
}
