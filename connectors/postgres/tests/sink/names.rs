//! Tables, columns and fields, whatever they are called.

use levada_core::{AtomicSink, Committed, ErrorClass, Sink, Value};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSink, PostgresSinkConfig, Tombstone, WriteMode};

use crate::scene::{Scene, context, delete, keyless, number, ready, send, text, upsert};

/// [PGS-30]
#[tokio::test(flavor = "multi_thread")]
async fn every_name_works() {
    let scene = Scene::new(
        r#"create schema "a.b"; create table "a.b"."or""der; drop table t" ("select" int, "x.y" text, "Größe" int, "q""q" text, primary key ("select", "q""q"))"#,
    );
    let table = TableName::in_schema("a.b", "or\"der; drop table t").expect("names");
    let config = PostgresSinkConfig::from_url(scene.database.url(), table, WriteMode::Upsert).expect("a URL");
    let mut sink = ready(config.key(["q\"q", "select"]).tombstones(Tombstone::Delete)).await;
    let key = |n: &str| [("select", number(n)), ("q\"q", text("k"))];
    let row = [("x.y", text("dot")), ("Größe", number("7"))];
    send(&mut sink, 0, vec![upsert(&key("1"), &row), upsert(&key("2"), &row)]).await.expect("commit");
    send(&mut sink, 2, vec![delete(&key("2")), upsert(&key("1"), &[("größe", number("8"))])])
        .await
        .expect("commit");
    assert_eq!(scene.row(r#"select * from "a.b"."or""der; drop table t""#), "1|dot|8|k");
}

/// [PGS-30] a dot is no separator.
#[tokio::test(flavor = "multi_thread")]
async fn dotted_name_is_one_name() {
    let scene = Scene::new(r#"create table "public.t" (a int); create table t (a int)"#);
    let mut sink = ready(scene.insert("public.t")).await;
    send(&mut sink, 0, vec![keyless(&[("a", number("1"))])]).await.expect("commit");
    assert_eq!(scene.row(r#"select (select count(*) from "public.t"), (select count(*) from t)"#), "1|0");
}

/// [PGS-30] two columns that differ in case: the exact name decides, and nothing is guessed.
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_field_is_an_error() {
    let scene = Scene::new(r#"create table t (id int, "Name" text, "NAME" text)"#);
    let mut sink = ready(scene.insert("t")).await;
    send(&mut sink, 0, vec![keyless(&[("ID", number("1")), ("NAME", text("x"))])]).await.expect("commit");
    assert_eq!(scene.row("select * from t"), "1||x");
    let of_columns = ([("id", number("1")), ("name", text("x"))], ErrorClass::Fatal);
    // The table is in order: it is this record that has two fields for one column.
    let of_fields = ([("id", number("1")), ("Id", number("2"))], ErrorClass::BadRecord);
    for (fields, class) in [of_columns, of_fields] {
        let error = send(&mut sink, 1, vec![keyless(&fields)]).await.expect_err("ambiguous");
        assert_eq!((error.class, error.coordinates.is_some()), (class, class == ErrorClass::BadRecord));
        let message = error.to_string();
        assert!(message.contains(&format!("{:?}", fields[1].0)) && message.contains("@1"), "{message}");
    }
}

/// [PGS-30] [PGS-29] the default: counted by name.
#[tokio::test(flavor = "multi_thread")]
async fn field_without_a_column_is_counted() {
    let scene = Scene::new("create table t (a int, doubled int generated always as (a * 2) stored)");
    let mut sink = ready(scene.insert("t")).await;
    let row = |n: &str| keyless(&[("a", number(n)), ("extra", text("x")), ("doubled", number("9"))]);
    send(&mut sink, 0, vec![row("1"), row("2")]).await.expect("commit");
    assert_eq!(scene.rows("select * from t order by 1"), ["1|2", "2|4"]);
    assert_eq!(sink.stats().unknown_fields.get("extra"), Some(&2));
    assert_eq!(sink.stats().unknown_fields.get("doubled"), Some(&2));
    let error = send(&mut sink, 2, vec![keyless(&[("extra", text("x"))])]).await.expect_err("no field");
    assert_eq!(error.class, ErrorClass::BadRecord);
}

/// [PGS-29] names without end are data: they take no memory without end.
#[tokio::test(flavor = "multi_thread")]
async fn fields_without_a_column_are_counted_together_beyond_a_thousand() {
    let scene = Scene::new("create table t (a int)");
    let mut sink = ready(scene.insert("t")).await;
    let names: Vec<String> = (0..1500).map(|n| format!("extra {n}")).collect();
    let rows = names.iter().map(|name| keyless(&[("a", number("1")), (name.as_str(), text("x"))])).collect();
    send(&mut sink, 0, rows).await.expect("commit");
    let counted = &sink.stats().unknown_fields;
    assert_eq!((counted.get("extra 999"), counted.get("extra 1000")), (Some(&1), None));
    assert_eq!((counted.len(), counted.get("(others)")), (1001, Some(&500)));
}

/// [PGS-16] more different sets of columns than are kept from one interval to the next.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_ever_different_columns_are_written() {
    let columns: Vec<String> = (0..13).map(|n| format!("c{n} int")).collect();
    let scene = Scene::new(&format!("create table t (id int primary key, {})", columns.join(", ")));
    let mut sink = ready(scene.upsert("t").key(["id"])).await;
    let names: Vec<String> = (0..13).map(|n| format!("c{n}")).collect();
    let row = |id: i64| {
        let set = (0..13).filter(|bit| id >> bit & 1 == 1);
        let fields: Vec<(&str, Value)> = set.map(|bit| (names[bit].as_str(), Value::Int(1))).collect();
        upsert(&[("id", Value::Int(id))], &fields)
    };
    // The first interval has more sets than are kept; the second one is written after they are forgotten.
    let (first, second): (Vec<_>, Vec<_>) = (0..8192).map(|id| (id, row(id))).partition(|(id, _)| *id < 4500);
    for part in [first, second] {
        let offset = part[0].0 as u64;
        send(&mut sink, offset, part.into_iter().map(|(_, row)| row).collect()).await.expect("commit");
    }
    let filled: Vec<String> = names.iter().map(|name| format!("count({name})")).collect();
    let counts = scene.row(&format!("select count(*), {} from t", filled.join(", ")));
    assert_eq!(counts, format!("8192{}", "|4096".repeat(13)));
}

/// [PGS-09] the error says what is wanted, what is there, and what would help.
#[tokio::test(flavor = "multi_thread")]
async fn key_without_a_unique_index_is_refused() {
    let scene = Scene::new(
        "create table t (a int, b int, c int, unique (a, b, c), constraint late unique (a, b) deferrable);
         create unique index partial on t (a, b) where c > 0; create unique index computed on t (a, (b + 1));
         create unique index covering on t (a) include (b)",
    );
    let mut sink = PostgresSink::new(scene.upsert("t").key(["b", "a"]));
    let error = sink.open(context()).await.expect_err("no such index").to_string();
    for part in [
        r#""public"."t""#,
        r#"("a", "b")"#,
        "t_a_b_c_key (a, b, c)",
        "covering (a)",
        r#"create unique index on "public"."t" ("a", "b")"#,
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    for useless in ["late", "partial", "computed"] {
        assert!(!error.contains(useless), "{useless} in {error}");
    }
    let ddl = error.rsplit("this would make one: ").next().expect("the DDL");
    scene.database.psql(ddl).expect("the DDL helps");
    ready(scene.upsert("t").key(["b", "a"])).await;
}

/// [PGS-08] [PGS-09] order does not matter, and a table that is all key does nothing on conflict.
#[tokio::test(flavor = "multi_thread")]
async fn composite_key_in_any_order_and_all_columns_key() {
    let scene =
        Scene::new("create table t (a int, b text, primary key (b, a)); insert into t values (1, 'x')");
    let mut sink = ready(scene.upsert("t").key(["a", "b"])).await;
    let pair = |a: &str, b: &str| upsert(&[("b", text(b)), ("a", text(a))], &[]);
    let committed = send(&mut sink, 0, vec![pair("1", "x"), pair("2", "y"), pair("02", "y")]).await;
    assert_eq!(committed.expect("commit"), Committed { written: 2, coalesced: 1, ..Committed::default() });
    assert_eq!(scene.rows("select * from t order by a"), ["1|x", "2|y"]);
}

/// [PGS-12]
#[tokio::test(flavor = "multi_thread")]
async fn null_key_is_a_bad_record_with_coordinates() {
    let scene = Scene::new("create table t (id int primary key, a text)");
    let mut sink = ready(scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete)).await;
    let no_key = keyless(&[("id", number("1")), ("a", text("x"))]);
    let null_field = upsert(&[("id", Value::Null)], &[("a", text("x"))]);
    let other_field = upsert(&[("a", text("x"))], &[("id", number("1"))]);
    let no_key_delete = levada_core::Keyed { key: None, change: levada_core::Change::Delete };
    for change in [no_key, null_field, other_field, no_key_delete] {
        let good = upsert(&[("id", number("1"))], &[("a", text("x"))]);
        let error = send(&mut sink, 6, vec![good, change]).await.expect_err("no key");
        assert_eq!(error.class, ErrorClass::BadRecord);
        assert_eq!(error.coordinates.as_ref().expect("coordinates").to_string(), "orders-0@7");
        assert!(error.to_string().contains("key"), "{error}");
        assert_eq!(sink.pending().rows, 0, "nothing of a refused batch is kept");
    }
}

/// Wrong configurations are told apart at start.
#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_does_not_fit_is_refused_at_start() {
    let scene =
        Scene::new(r#"create table t (id int primary key, "A" text, a text, j jsonb); create sequence s"#);
    let unit = levada_postgres::ColumnOptions::default().unit(levada_postgres::EpochUnit::Millis);
    let wrong = [
        (scene.upsert("nowhere").key(["id"]), "search path"),
        (scene.upsert("s").key(["id"]), "neither a table nor a view"),
        (scene.upsert("t"), "needs key columns"),
        (scene.upsert("t").key(["nothing"]), "no column \"nothing\""),
        (scene.upsert("t").key(["j"]), "jsonb"),
        (scene.insert("t").tombstones(Tombstone::Delete), "cannot delete"),
        (scene.insert("t").column("nothing", unit), "\"nothing\""),
        (scene.insert("t").column("id", unit), "int4"),
    ];
    for (config, part) in wrong {
        let mut sink = PostgresSink::new(config);
        let error = sink.open(context()).await.expect_err(part);
        assert!(error.class == ErrorClass::Fatal && error.to_string().contains(part), "{part} in {error}");
    }
}

/// [PGS-15] identity columns, the key among them, and defaults.
#[tokio::test(flavor = "multi_thread")]
async fn identity_column_takes_a_key_and_defaults_are_kept() {
    let scene = Scene::new(
        "create table t (a text, id int generated always as identity primary key, n serial, d int not null default 4)",
    );
    let mut sink = ready(scene.upsert("t").key(["id"])).await;
    let change = |a: &str| upsert(&[("id", number("7"))], &[("a", text(a))]);
    send(&mut sink, 0, vec![change("x")]).await.expect("commit");
    send(&mut sink, 1, vec![change("y")]).await.expect("commit");
    assert_eq!(scene.row("select * from t"), "y|7|1|4");
}

/// [PGS-16] the widest table there can be, and a constant number of statements.
#[tokio::test(flavor = "multi_thread")]
async fn table_of_1600_columns_works() {
    let columns: Vec<String> = (1..1600).map(|n| format!("c{n} int2")).collect();
    let scene = Scene::new(&format!("create table wide (id int primary key, {})", columns.join(", ")));
    let mut sink = ready(scene.upsert("wide").key(["id"])).await;
    let names: Vec<String> = (1..1600).map(|n| format!("c{n}")).collect();
    let fields: Vec<(&str, Value)> = names.iter().map(|name| (name.as_str(), Value::Int(3))).collect();
    let rows: Vec<_> = (0..100).map(|id| upsert(&[("id", Value::Int(id))], &fields)).collect();
    for round in 0..3 {
        send(&mut sink, round * 100, rows.clone()).await.expect("commit");
    }
    assert_eq!(scene.row("select count(*), min(c1), max(c1599) from wide"), "100|3|3");
}

/// [PGS-16] one text per kind and column set, however many rows.
#[tokio::test(flavor = "multi_thread")]
async fn number_of_statement_texts_is_constant() {
    let scene = Scene::new("create table t (id int primary key, a text, b text)");
    let mut config = scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete);
    config.rows_per_statement = 7;
    let mut sink = ready(config).await;
    let mut offset = 0;
    for count in [1, 2, 3, 5, 50, 500] {
        let mut changes: Vec<_> =
            (0..count).map(|id| upsert(&[("id", Value::Int(id))], &[("a", text("x"))])).collect();
        changes.push(upsert(&[("id", Value::Int(-1))], &[("b", text("x"))]));
        changes.push(delete(&[("id", Value::Int(-2))]));
        let sent = changes.len() as u64;
        send(&mut sink, offset, changes).await.expect("commit");
        offset += sent;
    }
    // Statements are prepared under names that count up; the last one's number is how many there were.
    scene.database.psql("create table seen (n bigint)").expect("a table");
    let prepared = "select count(*) from pg_prepared_statements";
    let trigger = format!(
        "create function count_prepared() returns trigger language plpgsql as $$ begin insert into seen {prepared}; return null; end $$; create trigger counting after insert on t for each statement execute function count_prepared()"
    );
    scene.database.psql(&trigger).expect("a trigger");
    send(&mut sink, offset, vec![upsert(&[("id", Value::Int(9))], &[("a", text("x"))])])
        .await
        .expect("commit");
    // Six to claim, one for the positions; lock, delete, and an upsert for each of the two column sets.
    assert_eq!(scene.row("select max(n) from seen"), "11");
}
