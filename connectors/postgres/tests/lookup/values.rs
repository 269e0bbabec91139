//! What comes back.

use levada_core::Value;

use crate::scene::{Scene, int, open, shown, text};

/// [LKP-08] every kind of column, listed or not; numeric to the last digit.
#[tokio::test(flavor = "multi_thread")]
async fn any_column_type_comes_back() {
    let scene = Scene::new(
        r#"create type mood as enum ('ok'); create type pair as (a int, b text); create domain positive as numeric check (value > 0);
           create table t (k int primary key, b bool, s smallint, i int, l bigint, n numeric, p positive, r real, d double precision,
             t text, v varchar(9), c char(5), y bytea, u uuid, day date, ts timestamp, tz timestamptz, tm time, j json, jb jsonb,
             m mood, pr pair, ia int[], ta text[], iv interval, ip inet, rg int4range, x xml, bt bit(3), mo money, oi oid, nm name, ch "char", pt point, tv tsvector);
           set timezone = 'UTC';
           insert into t values (1, true, -1, 2, 9007199254740993, 12345678901234567890.000000000100, 0.10, 0.1, 0.1,
             'é', 'v', 'c', '\x00ff', '00112233-4455-6677-8899-aabbccddeeff', '2024-02-29', '2024-02-29 12:00', '2024-02-29 12:00+01', '24:00', '{"a": 1.10}', '{"a": 1.10}',
             'ok', row(1, 'x'), '{1,null}', '{a,"b c"}', '1 day 2 hours', '10.0.0.1', '[1,3)', '<a/>', '101', 1.5, 4294967295, 'n', 'é', '(1,2)', 'a b');
           insert into t (k) values (2)"#,
    );
    let lookup = open(scene.table("t", &["k"])).await;
    let found = lookup.get(&[int(1)]).await.expect("a row");
    let row = &found[0];
    let value = |name: &str| row.get(name).cloned().expect("a column");
    assert_eq!(value("b"), Value::Bool(true));
    assert_eq!((value("s"), value("i"), value("l")), (int(-1), int(2), int(9_007_199_254_740_993)));
    assert_eq!(value("n"), Value::Number("12345678901234567890.000000000100".into()));
    assert_eq!(value("p"), Value::Number("0.10".into()));
    assert_eq!((value("r"), value("d")), (Value::Float(0.1), Value::Float(0.1)));
    assert_eq!((value("t"), value("v"), value("c")), (text("é"), text("v"), text("c    ")));
    assert!(matches!(value("y"), Value::Bytes(bytes) if bytes.as_bytes() == [0, 255]));
    assert!(matches!(value("u"), Value::Uuid(bytes) if bytes[15] == 0xff));
    assert_eq!(value("day"), Value::Date(19_782));
    let noon = 1_709_208_000_000_000;
    assert_eq!(value("ts"), Value::Timestamp { micros: noon, is_instant: false });
    assert_eq!(value("tz"), Value::Timestamp { micros: noon - 3_600_000_000, is_instant: true });
    assert_eq!(value("tm"), Value::Time(86_400_000_000));
    assert_eq!((value("j"), value("jb")), (text(r#"{"a": 1.10}"#), text(r#"{"a": 1.10}"#)));
    for (name, shown) in [
        ("m", "ok"),
        ("pr", "(1,x)"),
        ("ia", "{1,NULL}"),
        ("ta", r#"{a,"b c"}"#),
        ("iv", "1 day 02:00:00"),
        ("ip", "10.0.0.1/32"),
        ("rg", "[1,3)"),
        ("x", "<a/>"),
        ("bt", "101"),
        ("mo", "$1.50"),
        ("nm", "n"),
        ("pt", "(1,2)"),
        ("tv", "'a' 'b'"),
    ] {
        assert_eq!(value(name), text(shown), "{name}");
    }
    assert_eq!(value("oi"), int(4_294_967_295));
    assert!(matches!(value("ch"), Value::Text(_)));
    let nulls = lookup.get(&[int(2)]).await.expect("a row");
    assert!(nulls[0].values()[1..].iter().all(|value| *value == Value::Null));

    let by_query = open(
        scene
            .query("select m, ia, row(k, t) as both, n, null as nothing, '(1,2)'::point from t where k = :k"),
    )
    .await;
    assert_eq!(
        shown(&by_query.get(&[int(1)]).await),
        [r#"ok|{1,NULL}|(1,é)|12345678901234567890.000000000100|null|(1,2)"#]
    );
}

/// [LKP-08] a table that changes under a prepared statement is no dead end.
#[tokio::test(flavor = "multi_thread")]
async fn changed_table_is_prepared_anew() {
    let scene = Scene::new("create table t (k int primary key, v int); insert into t values (1, 5)");
    let lookup = open(scene.table("t", &["k"]).columns(["v"])).await;
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["5"]);
    scene.sql("alter table t alter v type numeric(9,2)");
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["5.00"]);
}
