//! Changes as they are stored in checkpoints.
//!
//! The golden file is never changed: a new version of the format adds a file and keeps the old one. A file that is missing
//! is written when `LEVADA_WRITE_GOLDEN` is set.

use std::fs;
use std::path::PathBuf;

use levada_core::batch::{Coordinates, Located};
use levada_core::{Change, Keyed, Row, Shape, Slice, SplitId, Storable, Value};
use proptest::prelude::*;

fn golden(name: &str, written: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if !path.exists() && std::env::var_os("LEVADA_WRITE_GOLDEN").is_some() {
        fs::write(&path, written).unwrap();
    }
    fs::read(&path).unwrap()
}

fn row(fields: Vec<(&str, Value)>) -> Row {
    let (names, values): (Vec<&str>, Vec<Value>) = fields.into_iter().unzip();
    Row::new(Shape::new(names), values)
}

/// A change with a value of every kind.
fn every_kind() -> Located<Keyed> {
    let nested = row(vec![("a", Value::Bool(true)), ("", Value::Null)]);
    let fields = vec![
        ("null", Value::Null),
        ("bool", Value::Bool(false)),
        ("int", Value::Int(-2)),
        ("number", Value::Number("0.1000000000000000055".into())),
        ("float", Value::Float(-0.5)),
        ("text", Value::Text("Größe".into())),
        ("bytes", Value::Bytes(Slice::owned([0, 255]))),
        ("date", Value::Date(-1)),
        ("time", Value::Time(86_400_000_000)),
        ("wall clock", Value::Timestamp { micros: 1, is_instant: false }),
        ("instant", Value::Timestamp { micros: -1, is_instant: true }),
        ("uuid", Value::Uuid([7; 16])),
        ("list", Value::List(vec![Value::Int(1), Value::List(vec![])])),
        ("map", Value::Map(vec![(Value::Text("k".into()), Value::Null)])),
        ("row", Value::Row(Box::new(nested))),
        ("long", Value::Text("x".repeat(300).into())),
    ];
    let item = Keyed { key: Some(row(vec![("id", Value::Int(1))])), change: Change::Upsert(row(fields)) };
    Located::new(Coordinates { split: SplitId::new("orders", 3), offset: 17 }, item)
}

fn stored<T: Storable>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.store(&mut bytes);
    bytes
}

/// [TPL-19]
#[test]
fn version_1_of_a_change() {
    let change = every_kind();
    let bytes = golden("change_v1.bin", &stored(&change));
    assert_eq!(stored(&change), bytes);
    assert_eq!(Located::<Keyed>::load(1, &bytes), Ok(change));
}

/// [TPL-19]
#[test]
fn a_change_of_a_later_version_is_refused() {
    let refused = Keyed::load(2, &[0]).unwrap_err();
    assert_eq!(refused.to_string(), "version 2 of a change was found, up to 1 is understood");
    Located::<Keyed>::load(2, &stored(&every_kind())).unwrap_err();
}

/// [TPL-19] Whatever byte is missing, or too many: an error.
#[test]
fn a_change_cut_anywhere_is_refused() {
    let mut whole = stored(&every_kind());
    for length in 0..whole.len() {
        Located::<Keyed>::load(1, &whole[..length]).unwrap_err();
    }
    whole.push(0);
    Located::<Keyed>::load(1, &whole).unwrap_err();
}

/// Null is a field, absence is none, and a deletion has no row; a key may be missing.
#[test]
fn null_absent_and_deleted_stay_apart() {
    let null = Keyed { key: None, change: Change::Upsert(row(vec![("a", Value::Null)])) };
    let absent = Keyed { key: None, change: Change::Upsert(row(vec![])) };
    let deleted = Keyed { key: Some(row(vec![("id", Value::Null)])), change: Change::Delete };
    for change in [null, absent, deleted] {
        assert_eq!(Keyed::load(1, &stored(&change)), Ok(change));
    }
}

#[test]
fn values_nested_too_deep_are_an_error_and_no_overflow() {
    // A list of a list of a list …
    let mut bytes = vec![2, 1, 1, b'a'];
    for _ in 0..100_000 {
        bytes.extend_from_slice(&[13, 1]);
    }
    bytes.push(0);
    let refused = Keyed::load(1, &bytes).unwrap_err();
    assert!(refused.to_string().contains("nested deeper"), "{refused}");
}

proptest! {
    /// [TPL-19]
    #[test]
    fn random_bytes_are_never_a_panic(bytes in prop::collection::vec(prop_oneof![0..20_u8, any::<u8>()], 0..60)) {
        let _ = Keyed::load(1, &bytes);
        let _ = Located::<Keyed>::load(1, &bytes);
    }
}
