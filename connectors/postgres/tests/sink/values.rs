//! Values into columns: what the server stores is what its own literal parser would have made of the same text.

use levada_core::{AtomicSink, ErrorClass, Keyed, Slice, Value};
use levada_postgres::{ColumnOptions, EpochUnit};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use crate::scene::{Scene, keyless, number, ready, row, send, text};

fn samples<S: Strategy>(strategy: S, count: usize) -> Vec<S::Value> {
    let mut runner = TestRunner::new(Config::default());
    (0..count).map(|_| strategy.new_tree(&mut runner).expect("a value").current()).collect()
}

/// Stores each literal by way of the sink, beside its text, and returns the literals whose stored value differs from
/// the one that the server makes of the text.
async fn differing(ty: &str, values: Vec<(Value, String)>) -> Vec<String> {
    let scene = Scene::new(&format!("create table t (literal text, c {ty})"));
    // A zone with odd offsets, in which nothing must be read or written.
    let database = scene.database.name();
    scene
        .database
        .psql(&format!("alter database {database} set timezone = 'Australia/Lord_Howe'"))
        .expect("a zone");
    let mut sink = ready(scene.insert("t")).await;
    let count = values.len();
    let rows =
        values.into_iter().map(|(value, literal)| keyless(&[("literal", text(&literal)), ("c", value)]));
    send(&mut sink, 0, rows.collect()).await.expect("commit");
    assert_eq!(scene.row("select count(*) from t"), count.to_string());
    scene.rows(&format!(
        "select literal, c from t where c is distinct from literal::{ty} or c::text is distinct from literal::{ty}::text"
    ))
}

fn numbers(literals: Vec<String>) -> Vec<(Value, String)> {
    literals.into_iter().map(|literal| (number(&literal), literal)).collect()
}

/// [PGS-25] [PGS-23] exact numbers of any width.
#[tokio::test(flavor = "multi_thread")]
async fn numeric_is_stored_as_written() {
    let mut literals: Vec<String> = [
        "0",
        "-0",
        "0.0",
        "-0.000",
        "9007199254740993",
        "0.1000000000000000055",
        "1e3",
        "1E+3",
        "1.5e-3",
        "10000",
        "0.0001",
        "0.00010000",
        "99999999",
        "100000000",
        "-123456789.987654321",
        "1e-16383",
        "1e131071",
        "0e99",
        "0e-5",
    ]
    .map(str::to_owned)
    .into();
    literals.push("9".repeat(10_000) + "." + &"8".repeat(10_000));
    literals.push(format!("0.{}1", "0".repeat(4_999)));
    literals.extend(samples("-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?", 3_000));
    assert_eq!(differing("numeric", numbers(literals)).await, Vec::<String>::new());
}

/// [PGS-25] within a column's own limits.
#[tokio::test(flavor = "multi_thread")]
async fn limited_numeric_is_stored_as_written() {
    let literals = samples("-?[0-9]{1,8}(\\.[0-9]{1,4}0{0,3})?", 2_000);
    assert_eq!(differing("numeric(12,4)", numbers(literals)).await, Vec::<String>::new());
}

/// [PGS-25] [PGS-23]
#[tokio::test(flavor = "multi_thread")]
async fn integers_are_stored_as_written() {
    let limits = ["9223372036854775807", "-9223372036854775808", "0", "9007199254740993"].map(str::to_owned);
    let mut literals = samples(any::<i64>().prop_map(|int| int.to_string()), 1_000);
    literals.extend(limits);
    assert_eq!(differing("int8", numbers(literals.clone())).await, Vec::<String>::new());
    let as_text = literals.into_iter().map(|literal| (text(&literal), literal)).collect();
    assert_eq!(differing("int8", as_text).await, Vec::<String>::new());
    let typed = samples(any::<i16>(), 500).into_iter().map(|int| (Value::Int(int.into()), int.to_string()));
    assert_eq!(differing("int2", typed.collect()).await, Vec::<String>::new());
    let typed = samples(any::<i32>(), 500).into_iter().map(|int| (number(&int.to_string()), int.to_string()));
    assert_eq!(differing("int4", typed.collect()).await, Vec::<String>::new());
}

/// [PGS-23] the nearest number of the column's own width.
#[tokio::test(flavor = "multi_thread")]
async fn floats_are_the_nearest_to_what_was_written() {
    let literals = samples("-?[0-9]{1,20}(\\.[0-9]{1,20})?(e[+-]?[0-9]{1,2})?", 1_000);
    assert_eq!(differing("float8", numbers(literals)).await, Vec::<String>::new());
    let literals = samples("-?[0-9]{1,9}(\\.[0-9]{1,20})?(e[+-]?[0-9])?", 1_000);
    assert_eq!(differing("float4", numbers(literals)).await, Vec::<String>::new());
    let special = ["NaN", "Infinity", "-Infinity"].map(|word| (text(word), word.to_owned()));
    assert_eq!(differing("float8", special.to_vec()).await, Vec::<String>::new());
    assert_eq!(differing("numeric", special.to_vec()).await, Vec::<String>::new());
}

/// [PGS-23] [PGS-27] text of every kind.
#[tokio::test(flavor = "multi_thread")]
async fn text_is_stored_as_it_is() {
    let mut literals = samples("\\PC{0,20}", 500);
    literals.extend(["", " ", "'", "\\", "{\"a\",NULL}", "ä", "日本", "a\u{1}\n\t"].map(str::to_owned));
    let values = |literals: &[String]| literals.iter().map(|it| (text(it), it.clone())).collect::<Vec<_>>();
    for ty in ["text", "varchar", "varchar(20)", "bpchar", "char(20)", "name"] {
        let fitting: Vec<String> =
            literals.iter().filter(|it| it.chars().count() <= 20 && it.len() < 64).cloned().collect();
        assert_eq!(differing(ty, values(&fitting)).await, Vec::<String>::new(), "{ty}");
    }
}

/// [PGS-26] whatever the session's time zone; years far away included.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_stored_as_written() {
    let date = "(000[1-9]|[0-9]{1,2}[1-9][0-9]|1[0-9]{5})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])( BC)?";
    let padded = |text: String| {
        let (year, rest) = text.split_once('-').expect("a date");
        format!("{year:0>4}-{rest}")
    };
    let is_known = |text: &String| !text.ends_with("BC") || text.len() <= 13 && text.as_str() < "4713";
    let mut dates: Vec<String> = samples(date, 1_000).into_iter().map(padded).filter(is_known).collect();
    dates.extend(
        ["4714-11-24 BC", "5874897-12-31", "infinity", "-infinity", "2024-02-29", "0001-01-01"]
            .map(str::to_owned),
    );
    let as_text = |literals: Vec<String>| literals.into_iter().map(|it| (text(&it), it)).collect::<Vec<_>>();
    assert_eq!(differing("date", as_text(dates)).await, Vec::<String>::new());

    let time = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,6})?)?";
    let zone = "(Z|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)";
    let day = "(00[1-9][0-9]|1[0-9]{3}|20[0-9]{2}|29[0-3][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
    let mut instants = samples(format!("{day}[T ]{time}{zone}").as_str(), 2_000);
    instants.extend(
        [
            "4714-11-24 00:00:00+00 BC",
            "294276-12-31 23:59:59.999999+00",
            "infinity",
            "-infinity",
            "2016-12-31T23:59:60Z",
            "2024-01-01T24:00:00Z",
        ]
        .map(str::to_owned),
    );
    assert_eq!(differing("timestamptz", as_text(instants)).await, Vec::<String>::new());

    let mut walls = samples(format!("{day}[T ]{time}").as_str(), 1_000);
    walls.extend(["2024-02-29", "infinity", "-infinity"].map(str::to_owned));
    assert_eq!(differing("timestamp", as_text(walls)).await, Vec::<String>::new());
}

/// [PGS-26] typed times and dates, before and after the epochs.
#[tokio::test(flavor = "multi_thread")]
async fn typed_times_keep_their_instant_and_dates_their_day() {
    let instant = |micros, is_instant| Value::Timestamp { micros, is_instant };
    let at = |micros: i64| {
        format!("1970-01-01 00:00:00+00'::timestamptz + interval '{micros} us").replace('\'', "''")
    };
    let _ = at;
    let pairs = vec![
        (instant(0, true), "1970-01-01 00:00:00+00".to_owned()),
        (instant(-1, true), "1969-12-31 23:59:59.999999+00".to_owned()),
        (instant(1_709_164_800_123_456, true), "2024-02-29 00:00:00.123456+00".to_owned()),
    ];
    assert_eq!(differing("timestamptz", pairs.clone()).await, Vec::<String>::new());
    let walls =
        pairs.iter().map(|(value, literal)| (value.clone(), literal.trim_end_matches("+00").to_owned()));
    assert_eq!(
        differing("timestamp", walls.collect()).await,
        Vec::<String>::new(),
        "an instant's reading in UTC"
    );
    let walls = vec![(instant(3_600_000_000, false), "1970-01-01 01:00:00".to_owned())];
    assert_eq!(differing("timestamp", walls).await, Vec::<String>::new());
    let with_offset = vec![(text("2024-06-01T02:00:00+02:00"), "2024-06-01 00:00:00".to_owned())];
    assert_eq!(differing("timestamp", with_offset).await, Vec::<String>::new());
    let cut = vec![(text("2024-06-01T00:00:00.1234569Z"), "2024-06-01 00:00:00.123456+00".to_owned())];
    assert_eq!(differing("timestamptz", cut).await, Vec::<String>::new(), "the one documented cut");
    let days = [-719_162, -1, 0, 19_782, 10_957]
        .map(|days| (Value::Date(days), format!("1970-01-01'::date + {days} --")));
    let days = days.into_iter().map(|(value, _)| (value, ())).collect::<Vec<_>>();
    let scene = Scene::new("create table t (c date)");
    let mut sink = ready(scene.insert("t")).await;
    send(&mut sink, 0, days.into_iter().map(|(value, ())| keyless(&[("c", value)])).collect())
        .await
        .expect("commit");
    assert_eq!(
        scene.rows("select c - '1970-01-01'::date from t order by 1"),
        ["-719162", "-1", "0", "10957", "19782"]
    );
}

/// [PGS-26] counted time, in the unit that the configuration names.
#[tokio::test(flavor = "multi_thread")]
async fn counted_time_needs_its_unit() {
    let scene =
        Scene::new("create table t (s timestamptz, ms timestamp, us timestamptz, ns timestamptz, d date)");
    let unit = |unit| ColumnOptions::default().unit(unit);
    let config = scene
        .insert("t")
        .column("s", unit(EpochUnit::Seconds))
        .column("ms", unit(EpochUnit::Millis))
        .column("us", unit(EpochUnit::Micros))
        .column("ns", unit(EpochUnit::Nanos))
        .column("d", unit(EpochUnit::Seconds));
    let mut sink = ready(config).await;
    let change = keyless(&[
        ("s", number("1709164800.25")),
        ("ms", Value::Int(-1)),
        ("us", number("1709164800000001")),
        ("ns", number("-1")),
        ("d", number("86400")),
    ]);
    send(&mut sink, 0, vec![change]).await.expect("commit");
    assert_eq!(
        scene.row("set timezone = 'UTC'; select * from t"),
        "2024-02-29 00:00:00.25+00|1969-12-31 23:59:59.999|2024-02-29 00:00:00.000001+00|1969-12-31 23:59:59.999999+00|1970-01-02"
    );
    let error =
        send(&mut sink, 1, vec![keyless(&[("d", number("86401"))])]).await.expect_err("a time of day");
    assert_eq!(error.class, ErrorClass::BadRecord);
}

/// [PGS-28] any value into jsonb, numbers by their text.
#[tokio::test(flavor = "multi_thread")]
async fn nested_values_become_json() {
    let scene = Scene::new("create table t (n int, c jsonb, j json)");
    let mut sink = ready(scene.insert("t").column("j", ColumnOptions::default().text_is_json_string())).await;
    let nested = Value::Row(Box::new(row(&[
        ("n", number("0.1000000000000000055")),
        ("l", Value::List(vec![Value::Null, Value::Bool(true), text("q\"\\\n\u{1}ü")])),
        ("m", Value::Map(vec![(text("k"), Value::Int(1)), (Value::Int(2), Value::Date(0))])),
        ("t", Value::Timestamp { micros: 1, is_instant: true }),
    ])));
    let values = [nested, number("9007199254740993"), text("{\"a\": [1.50]}"), Value::Bool(false)];
    let rows = values.into_iter().enumerate().map(|(n, value)| {
        keyless(&[("n", Value::Int(n as i64)), ("c", value), ("j", text("no \"document\""))])
    });
    send(&mut sink, 0, rows.collect()).await.expect("commit");
    assert_eq!(
        scene.rows("select c from t order by n"),
        [
            r#"{"l": [null, true, "q\"\\\n\u0001ü"], "m": {"2": "1970-01-01", "k": 1}, "n": 0.1000000000000000055, "t": "1970-01-01T00:00:00.000001Z"}"#,
            "9007199254740993",
            r#"{"a": [1.50]}"#,
            "false",
        ]
    );
    assert_eq!(scene.row("select distinct j::text from t"), r#""no \"document\"""#);
}

/// [PGS-23] other types travel as text and are cast, lengths checked and not cut.
#[tokio::test(flavor = "multi_thread")]
async fn other_types_are_cast_from_text() {
    let scene = Scene::new(
        "create type mood as enum ('sad', 'Happy'); create domain percent as numeric(5,2) check (value <= 100);
         create domain short as varchar(3); create schema \"S p\"; create type \"S p\".\"E\" as enum ('x');
         create table t (m mood, e \"S p\".\"E\", i inet, a int[], iv interval, b bit(3), vb varbit(2), tm time, p percent,
             s short, u uuid, y bytea, bo bool)",
    );
    let mut sink = ready(scene.insert("t")).await;
    let change = keyless(&[
        ("m", text("Happy")),
        ("e", text("x")),
        ("i", text("10.0.0.1")),
        ("a", text("{1,NULL}")),
        ("iv", text("1 day")),
        ("b", text("101")),
        ("vb", text("1")),
        ("tm", Value::Time(86_399_999_999)),
        ("p", number("99.5")),
        ("s", text("abc")),
        ("u", text("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11")),
        ("y", Value::Bytes(Slice::owned(b"\0\xff".to_vec()))),
        ("bo", text("T")),
    ]);
    send(&mut sink, 0, vec![change]).await.expect("commit");
    assert_eq!(
        scene.row("select * from t"),
        r"Happy|x|10.0.0.1|{1,NULL}|1 day|101|1|23:59:59.999999|99.50|abc|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|\x00ff|t"
    );
    for (name, value) in [
        ("b", text("1010")),
        ("vb", text("101")),
        ("m", text("angry")),
        ("p", number("101")),
        ("i", text("x")),
    ] {
        let error = send(&mut sink, 1, vec![keyless(&[(name, value)])]).await.expect_err(name);
        assert_eq!(error.class, ErrorClass::BadRecord, "{name}: {error}");
        sink.discard();
    }
}

/// [PGS-24] [PGS-26] [PGS-27] [PGS-38] whatever would not come back as it was is refused, naming column and class, never the value.
#[tokio::test(flavor = "multi_thread")]
async fn narrowing_is_a_bad_record_that_names_the_column() {
    let scene = Scene::new(
        "create table t (i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, n52 numeric(5,2), v varchar(6), c char(6),
             x text, b bool, d date, ts timestamp, ts3 timestamp(3), tz timestamptz, j jsonb, u uuid, y bytea, nn int not null)",
    );
    let mut sink = ready(scene.insert("t")).await;
    let secret = || text("hunter2");
    let wall = |micros| Value::Timestamp { micros, is_instant: false };
    let wrong: Vec<(&str, Value, &str)> = vec![
        ("i2", number("32768"), "number out of range for int2"),
        ("i4", number("2147483648"), "number out of range for int4"),
        ("i8", number("9223372036854775808"), "number out of range for int8"),
        ("i4", number("1.5"), "fraction"),
        ("i4", text("1.0"), "literal"),
        ("i4", secret(), "literal"),
        ("i4", Value::Float(0.5), "fraction"),
        ("i8", Value::Float(1e300), "float out of range"),
        ("i4", Value::Bool(true), "boolean"),
        ("f4", number("1e39"), "number out of range for float4"),
        ("f4", Value::Float(1e39), "float out of range for float4"),
        ("f8", number("1e309"), "number out of range for float8"),
        ("f8", number("1e-400"), "number out of range for float8"),
        ("n", number("1e131072"), "number out of range for numeric"),
        ("n52", number("1000"), "number out of range for numeric(5,2)"),
        ("n52", number("0.001"), "more fraction digits than numeric(5,2)"),
        ("n52", text("Infinity"), "infinity out of range"),
        ("v", secret(), "text is too long for varchar(6)"),
        ("v", text("äöüäöü "), "text is too long for varchar(6)"),
        ("c", secret(), "text is too long for char(6)"),
        ("x", text("a\0"), "NUL"),
        ("x", Value::List(vec![secret()]), "jsonb"),
        ("x", Value::Bytes(Slice::owned(*b"hunter2")), "bytes"),
        ("n", text("\u{a0}1"), "literal"),
        ("f8", text("1\u{a0}"), "literal"),
        ("b", text("\u{2003}t"), "literal"),
        ("b", number("1"), "number"),
        ("b", secret(), "literal"),
        ("d", text("2023-02-29"), "literal"),
        ("d", text("2023-02-28T10:00"), "time of day"),
        ("d", text("5874898-01-01"), "text out of range for date"),
        ("d", Value::Int(1), "unit"),
        ("ts", text("294277-01-01"), "text out of range for timestamp"),
        ("ts", number("1"), "unit"),
        ("ts3", text("2024-01-01 00:00:00.0001"), "more fraction digits than timestamp(3)"),
        ("ts3", wall(1), "more fraction digits than timestamp(3)"),
        ("tz", text("2024-01-01 00:00:00"), "assume_utc"),
        ("tz", wall(0), "assume_utc"),
        ("j", secret(), "text_is_json_string"),
        ("j", text(r#"{"a": "\u0000"}"#), "NUL"),
        ("j", Value::List(vec![text("\0")]), "NUL"),
        ("j", Value::Float(f64::NAN), "finite"),
        ("u", secret(), "literal"),
        ("y", secret(), "literal"),
        ("nn", Value::Null, "null"),
    ];
    for (column, value, part) in wrong {
        let good = keyless(&[("i4", number("1.0")), ("nn", Value::Int(1))]);
        let change = keyless(&[(column, value), ("extra", text("x"))]);
        let error = send(&mut sink, 10, vec![good, change]).await.expect_err(part);
        assert_eq!(error.class, ErrorClass::BadRecord, "{column}: {error}");
        let shown = format!("{} {error:?}", crate::scene::chain(&error));
        assert!(
            shown.contains("orders-0@11") && shown.contains(&format!("{column:?}").replace('"', "")),
            "{shown}"
        );
        assert!(shown.contains(part), "{part} in {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert_eq!(sink.pending().rows, 0);
    let fitting = keyless(&[
        ("v", text("äöüäöü")),
        ("c", text("äöüäöü   ")),
        ("n52", text(" 999.9900 ")),
        ("ts3", text("2024-01-01 00:00:00.1230")),
        ("i4", number("1e3")),
        ("nn", Value::Int(1)),
    ]);
    send(&mut sink, 10, vec![fitting]).await.expect("commit");
    assert_eq!(
        scene.row("select v, c, n52, ts3, i4 from t"),
        "äöüäöü|äöüäöü|999.99|2024-01-01 00:00:00.123|1000"
    );
}

/// [PGS-10] equality is the column type's, in every type that a key can have.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_equal_when_the_column_type_says_so() {
    let cases: Vec<(&str, Vec<Value>)> = vec![
        ("int", vec![text("1"), text("01"), text("+1"), number("1.0"), Value::Int(1)]),
        ("numeric", vec![number("1"), number("1.00"), text("01"), number("100e-2"), Value::Float(1.0)]),
        ("numeric(6,3)", vec![number("0"), number("-0.00"), text("0e5")]),
        ("float8", vec![Value::Float(0.0), Value::Float(-0.0), number("-0")]),
        ("float4", vec![Value::Float(f64::NAN), text("NaN"), text("nan")]),
        ("char(5)", vec![text("a"), text("a  "), text("a    ")]),
        (
            "uuid",
            vec![text("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"), text("{a0eebc999c0b4ef8bb6d6bb9bd380a11}")],
        ),
        ("timestamptz", vec![text("2024-01-01T01:00:00+01:00"), text("2024-01-01 00:00Z")]),
        ("bool", vec![text("yes"), Value::Bool(true), text("t")]),
        ("bytea", vec![text("\\xFF"), Value::Bytes(Slice::owned([255]))]),
    ];
    for (ty, values) in cases {
        let scene = Scene::new(&format!("create table t (id {ty} primary key, n int)"));
        let mut sink = ready(scene.upsert("t").key(["id"])).await;
        let count = values.len() as u64;
        let changes = values.into_iter().enumerate();
        let changes =
            changes.map(|(n, id)| crate::scene::upsert(&[("id", id)], &[("n", Value::Int(n as i64))]));
        let committed = send(&mut sink, 0, changes.collect::<Vec<Keyed>>()).await.expect(ty);
        assert_eq!((committed.written, committed.coalesced), (1, count - 1), "{ty}");
        assert_eq!(scene.row("select n from t"), (count - 1).to_string(), "{ty}: the last one wins");
    }
}

/// [PGS-10] and different ones stay different, sorted as the server sorts them.
#[tokio::test(flavor = "multi_thread")]
async fn different_keys_stay_different() {
    let cases: Vec<(&str, Vec<String>)> = vec![
        ("int8", samples(any::<i64>().prop_map(|int| int.to_string()), 300)),
        ("numeric", samples("-?[0-9]{1,12}\\.[0-9]{1,12}", 300)),
        ("float8", samples("-?[0-9]{1,12}\\.[0-9]{1,12}", 300)),
        ("text", samples("[a-c]{0,6}", 300)),
    ];
    for (ty, literals) in cases {
        let scene = Scene::new(&format!(
            "create table t (id {ty}, second text, literal text, primary key (id, second))"
        ));
        let mut sink = ready(scene.upsert("t").key(["id", "second"])).await;
        let changes = literals.iter().map(|it| {
            let (first, second) = it.split_at(it.len() / 2);
            let second = if ty == "text" { second } else { "" };
            let first = if ty == "text" { first } else { it };
            crate::scene::upsert(&[("id", text(first)), ("second", text(second))], &[("literal", text(it))])
        });
        send(&mut sink, 0, changes.collect()).await.expect("commit");
        let distinct: std::collections::HashSet<&String> = literals.iter().collect();
        let expected = scene.rows("select count(*) from t");
        match ty {
            // The literals may repeat a value in another writing only in the number types.
            "text" => assert_eq!(expected, [distinct.len().to_string()]),
            _ => assert_eq!(
                scene.rows(&format!("select * from t where id <> literal::{ty}")),
                Vec::<String>::new()
            ),
        }
    }
}
