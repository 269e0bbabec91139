//! What is found, and how it is asked for.

use std::time::Duration;

use levada_core::{ErrorChain, ErrorClass, Row, Shape, Timestamp, Value};
use levada_postgres::PostgresLookup;
use levada_postgres::lookup::{Enriched, Enrichment, Join, LastMiss, LookupError, Matches, Miss};

use crate::scene::{Scene, connect, int, number, open, shown, text, until};

const AIRLINES: &str = "create table airlines (code text primary key, name text, founded int);
    insert into airlines values ('AA', 'American', 1926), ('DL', 'Delta', 1925), ('N''X', null, null)";

/// [LKP-01] by table, key and wanted columns, whatever is in a key.
#[tokio::test(flavor = "multi_thread")]
async fn row_is_found_by_its_key() {
    let scene = Scene::new(AIRLINES);
    let lookup = open(scene.table("airlines", &["code"]).columns(["founded", "name"])).await;
    assert_eq!(shown(&lookup.get(&[text("DL")]).await), ["1925|Delta"]);
    assert_eq!(shown(&lookup.get(&[text("N'X")]).await), ["null|null"]);
    assert_eq!(shown(&lookup.get(&[text("' or true --")]).await), [""; 0]);
    let found = lookup.get(&[text("AA")]).await.expect("a row");
    assert_eq!(found[0].get("name"), Some(&text("American")));
}

/// [LKP-03] by a query, only the same bytes are one key: what it makes of its parameters nobody else knows.
#[tokio::test(flavor = "multi_thread")]
async fn query_is_asked_about_each_spelling_of_a_number() {
    let scene = Scene::new(AIRLINES);
    let lookup = open(scene.query("select (:n::numeric)::text as shown")).await;
    let answers = lookup.get_many(&[[number("1.0")], [number("1.00")], [number("1.0")]]).await;
    let told: Vec<_> = answers.iter().map(shown).collect();
    assert_eq!(told, [["1.0"], ["1.00"], ["1.0"]]);
    assert_eq!(lookup.stats().coalesced, 1);
}

/// [LKP-07] what the server cannot carry out is told at the start: a key column that nothing is equal to.
#[tokio::test(flavor = "multi_thread")]
async fn statement_that_cannot_be_prepared_is_refused_at_the_start() {
    let scene = Scene::new("create table documents (k json, v int)");
    let refused = PostgresLookup::open(scene.table("documents", &["k"]).columns(["v"])).await;
    let error = refused.expect_err("json has no equality");
    assert_eq!(error.class(), ErrorClass::Fatal);
    let shown = ErrorChain(&error).to_string();
    assert!(shown.contains("documents") && shown.contains("operator does not exist"), "{shown}");
}

/// [LKP-03] [LKP-05] whoever asks is counted, and not each query: keys with a row and keys without one.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_counted_by_who_asks() {
    let scene = Scene::new(AIRLINES);
    let lookup = open(scene.table("airlines", &["code"]).columns(["name"])).await;
    let keys: Vec<[Value; 1]> = ["ZZ", "AA", "ZZ", "ZZ", "AA"].map(|code| [text(code)]).into();
    lookup.get_many(&keys).await;
    let stats = lookup.stats();
    assert_eq!((stats.keys, stats.found, stats.not_found), (5, 2, 3));
}

/// [LKP-01] parameters are bound with the column's type, and names are quoted.
#[tokio::test(flavor = "multi_thread")]
async fn key_is_bound_by_the_type_of_its_column() {
    let scene = Scene::new(
        r#"create type mood as enum ('sad', 'ok'); create domain code as varchar(3);
           create table "o""dd" ("select" int, "ä.b" mood, d code, n numeric(6,2), primary key ("select", "ä.b"));
           insert into "o""dd" values (42, 'ok', 'abc', 1.50), (43, 'sad', 'xyz', -2)"#,
    );
    let by_int = open(scene.table("o\"dd", &["select"]).columns(["d"])).await;
    for forty_two in [int(42), number("42"), number("4.2e1"), text("42")] {
        assert_eq!(shown(&by_int.get(&[forty_two]).await), ["abc"]);
    }
    let composite = open(scene.table("o\"dd", &["ä.b", "select"]).columns(["d"])).await;
    assert_eq!(shown(&composite.get(&[text("ok"), text("42")]).await), ["abc"]);
    let by_domain = open(scene.table("o\"dd", &["d"]).columns(["select"])).await;
    assert_eq!(shown(&by_domain.get(&[text("xyz")]).await), ["43"]);
    assert_eq!(shown(&by_domain.get(&[text("longer than three")]).await), [""; 0], "it matches nothing");
    let by_numeric = open(scene.table("o\"dd", &["n"]).columns(["select"])).await;
    assert_eq!(shown(&by_numeric.get(&[number("1.5")]).await), ["42"]);
    assert_eq!(shown(&by_numeric.get(&[number("1.501")]).await), [""; 0]);
    let error = by_int.get(&[text("forty-two hunter2")]).await.expect_err("no number");
    assert_eq!(error.class(), ErrorClass::BadRecord);
    let shown = ErrorChain(&error).to_string();
    assert!(shown.contains("\"select\"") && !shown.contains("hunter2"), "{shown}");
}

/// [LKP-01] the parameters' types come from the server.
#[tokio::test(flavor = "multi_thread")]
async fn query_takes_named_parameters() {
    let scene = Scene::new(AIRLINES);
    let lookup = open(scene.query(
        "select name, founded + :years as later, ':code' as literal from airlines -- :no
         where code = :code and founded + :years > 0;",
    ))
    .await;
    assert_eq!(shown(&lookup.get(&[text("10"), text("AA")]).await), ["American|1936|:code"]);
    let both = lookup.get_many(&[[int(1), text("DL")], [int(2), text("AA")], [int(3), text("none")]]).await;
    assert_eq!(
        both.iter().map(shown).collect::<Vec<_>>(),
        [vec!["Delta|1926|:code"], vec!["American|1928|:code"], vec![]]
    );
    assert_eq!(lookup.stats().queries, 2);
    for wrong in ["select 1", "select name from airlines where code = $1", "insert into airlines values (:a)"]
    {
        let error = PostgresLookup::open(scene.query(wrong)).await.expect_err(wrong);
        assert_eq!(error.class(), ErrorClass::Fatal, "{error}");
    }
}

/// [LKP-02]
#[tokio::test(flavor = "multi_thread")]
async fn modes_say_which_matches_count() {
    let scene = Scene::new(
        "create table t (k int, v int); create index on t (k); insert into t values (1, 30), (1, 10), (1, 20), (2, 5)",
    );
    let table = || scene.table("t", &["k"]).columns(["v"]);
    let keys = [[int(1)], [int(2)], [int(3)]];
    let all = open(table().matches(Matches::All).order_by("v", false)).await;
    let found = all.get_many(&keys).await;
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), [vec!["10", "20", "30"], vec!["5"], vec![]]);
    let first = open(table().order_by("v", true)).await;
    let found = first.get_many(&keys).await;
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), [vec!["30"], vec!["5"], vec![]]);
    assert_eq!(shown(&first.get(&keys[0]).await), ["30"]);
    let one = open(table().matches(Matches::ExactlyOne)).await;
    for found in [
        one.get_many(&keys).await,
        vec![one.get(&keys[0]).await, one.get(&keys[1]).await, one.get(&keys[2]).await],
    ] {
        assert!(matches!(found[0], Err(LookupError::Ambiguous { .. })), "{found:?}");
        assert_eq!(shown(&found[1]), ["5"]);
        assert!(matches!(found[2], Err(LookupError::NoMatch { .. })), "{found:?}");
    }
}

fn record() -> Row {
    Row::new(Shape::new(["flight", "carrier"]), vec![int(7), text("AA")])
}

fn fields(enriched: &Enriched) -> Vec<String> {
    let Enriched::Rows(rows) = enriched else { panic!("{enriched:?}") };
    rows.iter()
        .map(|row| {
            row.iter()
                .map(|(name, value)| {
                    format!(
                        "{name}={}",
                        match value {
                            Value::Int(n) => n.to_string(),
                            Value::Text(t) => t.as_str().to_owned(),
                            Value::List(rows) => format!("{} rows", rows.len()),
                            other => format!("{other:?}"),
                        }
                    )
                })
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

/// [LKP-02] n outputs or an array; null fields, nothing, or a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn rows_join_the_record() {
    let scene = Scene::new("create table t (k text, v int); insert into t values ('AA', 1), ('AA', 2)");
    let lookup =
        open(scene.table("t", &["k"]).columns(["v"]).matches(Matches::All).order_by("v", false)).await;
    let enrichment = Enrichment::new(lookup, "air");
    let hit = [text("AA")];
    let miss = [text("ZZ")];
    let enriched = enrichment.enrich(&record(), &hit).await.expect("an answer");
    assert_eq!(fields(&enriched), ["flight=7 carrier=AA air_v=1", "flight=7 carrier=AA air_v=2"]);
    let enriched = enrichment.enrich(&record(), &miss).await.expect("an answer");
    assert_eq!(fields(&enriched), ["flight=7 carrier=AA air_v=Null"]);
    let array = enrichment.clone().join(Join::Array);
    assert_eq!(
        fields(&array.enrich(&record(), &hit).await.expect("rows")),
        ["flight=7 carrier=AA air=2 rows"]
    );
    assert_eq!(
        fields(&array.enrich(&record(), &miss).await.expect("rows")),
        ["flight=7 carrier=AA air=0 rows"]
    );
    let inner = enrichment.clone().on_miss(Miss::Drop);
    assert_eq!(inner.enrich(&record(), &miss).await.expect("none"), Enriched::Dropped);
    let strict = enrichment.on_miss(Miss::DeadLetter);
    assert_eq!(strict.enrich(&record(), &[Value::Null]).await.expect("none"), Enriched::Refused);
}

/// [LKP-02] the row that arrives while the record waits is found; the number of attempts is exact.
#[tokio::test(flavor = "multi_thread")]
async fn missing_row_is_looked_up_again() {
    let scene = Scene::new("create table t (k text primary key, v int)");
    let lookup = open(scene.table("t", &["k"]).columns(["v"])).await;
    let retry = |attempts, delay, then| Miss::Retry { delay, attempts, then };
    let gone = Enrichment::new(lookup.clone(), "t").on_miss(retry(3, Duration::ZERO, LastMiss::Drop));
    assert_eq!(gone.enrich(&record(), &[text("x")]).await.expect("none"), Enriched::Dropped);
    assert_eq!(lookup.stats().queries, 4);

    let patient = Enrichment::new(lookup.clone(), "t").on_miss(retry(
        u32::MAX,
        Duration::from_millis(1),
        LastMiss::Drop,
    ));
    let waiting = tokio::spawn(async move { patient.enrich(&record(), &[text("late")]).await });
    let asked = lookup.clone();
    until("a second attempt", move || asked.stats().not_found >= 6).await;
    scene.sql("insert into t values ('late', 9)");
    let enriched = waiting.await.expect("no panic").expect("an answer");
    assert_eq!(fields(&enriched), ["flight=7 carrier=AA t_v=9"]);
}

/// [LKP-03] one round trip for all keys, each with its own answer; NULL matches nothing, not even NULL.
#[tokio::test(flavor = "multi_thread")]
async fn many_keys_share_one_query() {
    let scene = Scene::new(
        "create table t (a int, b text, v int); insert into t select n, 'b' || n, n * 10 from generate_series(1, 400) n; insert into t values (7, null, 1), (null, null, 2)",
    );
    let lookup = open(scene.table("t", &["a", "b"]).columns(["v"])).await;
    let mut keys: Vec<[Value; 2]> = (1..=450).map(|n| [int(n), text(&format!("b{n}"))]).collect();
    keys.push([int(7), Value::Null]);
    keys.push([Value::Null, Value::Null]);
    keys.push([int(5), text("b5")]);
    keys.push([int(i64::MAX), text("b5")]);
    let found = lookup.get_many(&keys).await;
    for (n, found) in found.iter().take(450).enumerate() {
        let expected = if n < 400 { vec![((n + 1) * 10).to_string()] } else { vec![] };
        assert_eq!(shown(found), expected, "{n}");
    }
    assert_eq!(
        (shown(&found[450]), shown(&found[451]), shown(&found[452])),
        (vec![], vec![], vec!["50".to_owned()])
    );
    assert!(matches!(found[453], Err(LookupError::Key { .. })), "only the key at fault: {:?}", found[453]);
    let stats = lookup.stats();
    assert_eq!((stats.queries, stats.coalesced, stats.null_keys), (1, 1, 2));
}

/// [LKP-03] a key that the server cannot take fails alone, in a batch too.
#[tokio::test(flavor = "multi_thread")]
async fn key_at_fault_fails_alone() {
    let scene = Scene::new("create table t (k int primary key)");
    let lookup = open(scene.query("select 100 / (:n::int - 50) as quotient")).await;
    let keys: Vec<[Value; 1]> = (0..100).map(|n| [int(n)]).collect();
    let found = lookup.get_many(&keys).await;
    let failed: Vec<usize> = (0..100).filter(|n| found[*n].is_err()).collect();
    assert_eq!(failed, [50]);
    assert_eq!(found[50].as_ref().expect_err("a division by zero").sqlstate(), Some("22012"));
    assert_eq!(shown(&found[60]), ["10"]);
}

/// [LKP-03] calls for a key that is on its way wait for that answer.
#[tokio::test(flavor = "multi_thread")]
async fn equal_keys_share_one_query() {
    let scene = Scene::new(AIRLINES);
    let lookup = open(scene.table("airlines", &["code"]).columns(["name"])).await;
    let blocker = connect(scene.database.url()).await;
    blocker.batch_execute("begin; lock airlines").await.expect("a lock");
    let calls: Vec<_> = (0..50)
        .map(|n| {
            let lookup = lookup.clone();
            let key = [text(if n % 2 == 0 { "AA" } else { "DL" })];
            tokio::spawn(async move { lookup.get(&key).await })
        })
        .collect();
    let asked = lookup.clone();
    until("all calls", move || asked.stats().coalesced == 48).await;
    blocker.batch_execute("commit").await.expect("the end of the lock");
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(shown(&call.await.expect("no panic")), [if n % 2 == 0 { "American" } else { "Delta" }]);
    }
    assert_eq!(lookup.stats().queries, 2);
}

/// [LKP-07] and what the session says of itself.
#[tokio::test(flavor = "multi_thread")]
async fn session_is_named_limited_and_reads_only() {
    let scene = Scene::new("create table t (k int primary key); create sequence s");
    let seen = open(
        scene
            .query("select current_setting('statement_timeout') || ' ' || current_setting('transaction_read_only') || ' ' || current_setting('application_name') as s where :n = 1")
            .timeout(Duration::from_secs(7)),
    )
    .await;
    assert_eq!(shown(&seen.get(&[int(1)]).await), ["7s on levada/lookup"]);
    let writes = open(scene.query("select nextval('s') where :n = 1")).await;
    let error = writes.get(&[int(1)]).await.expect_err("it writes");
    assert_eq!(error.sqlstate(), Some("25006"));
}

/// [LKP-07]
#[tokio::test(flavor = "multi_thread")]
async fn missing_index_is_warned_of_at_the_start() {
    let scene = Scene::new(
        "create table t (k int primary key, other int, v int); create index on t (v);
         insert into t select n, n, n from generate_series(1, 3) n; analyze t",
    );
    let warnings = |key: &'static str| {
        let config = scene.table("t", &[key]);
        async move { open(config).await.warnings().to_vec() }
    };
    assert!(warnings("k").await.is_empty(), "three rows are read as a whole, but need not be");
    assert!(warnings("v").await.is_empty());
    let found = warnings("other").await;
    assert!(found.len() == 1 && found[0].contains("(other)"), "{found:?}");
    let by_query = open(scene.query("select v from t where other + 0 = :o")).await;
    assert_eq!(by_query.warnings().len(), 1);
}

/// [LKP-09] what counted at the event's time, for each type that a version can have.
#[tokio::test(flavor = "multi_thread")]
async fn version_column_finds_what_counted_then() {
    let scene = Scene::new(
        "create table t (k int, since timestamptz, wall timestamp, ms bigint, v text);
         create index on t (k, since);
         insert into t select k, at, at at time zone 'UTC', extract(epoch from at) * 1000, v from (values
            (1, timestamptz '1970-01-01 00:00:01Z', 'old'), (1, '1970-01-01 00:00:02Z', 'new'), (2, '1970-01-01 00:00:01Z', 'other')) as x(k, at, v)",
    );
    for version in ["since", "wall", "ms"] {
        let lookup = open(scene.table("t", &["k"]).columns(["v"]).version_column(version)).await;
        for (time, expected) in [
            (999, vec![]),
            (1000, vec!["old"]),
            (1999, vec!["old"]),
            (2000, vec!["new"]),
            (i64::MAX / 1000, vec!["new"]),
        ] {
            assert_eq!(
                shown(&lookup.get_as_of(&[int(1)], Timestamp(time)).await),
                expected,
                "{version} at {time}"
            );
        }
        let keys = [
            lookup.as_of(&[int(1)], Timestamp(1500)).expect("a key"),
            lookup.as_of(&[int(2)], Timestamp(1500)).expect("a key"),
        ];
        let found = lookup.get_many(&keys).await;
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), [vec!["old"], vec!["other"]], "{version}");
    }
}
