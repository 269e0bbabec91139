//! What is kept, and what makes it invalid.

use std::sync::Arc;
use std::time::Duration;

use levada_core::{ErrorClass, Row, Shape, Value};
use levada_postgres::PostgresLookup;
use levada_postgres::lookup::{CacheBound, CacheConfig, Enriched, Enrichment, LastMiss, Miss};
use levada_testcontainers::{Action, Cut, Direction, Trigger};

use crate::scene::{Scene, by_table, connect, int, open, shown, text, until};

const TABLE: &str =
    "create table t (k int primary key, v int); insert into t select n, n from generate_series(1, 9) n;
    create function tell() returns trigger language plpgsql as $$ begin
        perform pg_notify('t changed', coalesce(new.k, old.k)::text); return null; end $$;
    create trigger tell after insert or update or delete on t for each row execute function tell()";

fn rows(bound: u64) -> CacheConfig {
    CacheConfig::new(CacheBound::Rows(bound))
}

/// [LKP-05] clones are the subtasks of a process.
#[tokio::test(flavor = "multi_thread")]
async fn clones_share_what_is_kept() {
    let scene = Scene::new(TABLE);
    let lookup = open(scene.table("t", &["k"]).columns(["v"]).cache(rows(100))).await;
    let clone = lookup.clone();
    for _ in 0..3 {
        assert_eq!(shown(&lookup.get(&[int(1)]).await), ["1"]);
        assert_eq!(shown(&clone.get(&[text("1")]).await), ["1"]);
        assert_eq!(shown(&clone.get(&[int(77)]).await), [""; 0]);
    }
    let stats = lookup.stats();
    assert_eq!((stats.queries, stats.hits, stats.misses, stats.negative_hits), (4, 5, 4, 0));
    scene.sql("update t set v = 100 where k = 1");
    assert_eq!(shown(&clone.get(&[int(1)]).await), ["1"], "stale, until it is told");
    lookup.invalidate(&[int(1)]).expect("a key");
    assert_eq!(shown(&clone.get(&[int(1)]).await), ["100"]);
}

/// [LKP-05] off by default; a row that arrives is not seen while its absence is kept.
#[tokio::test(flavor = "multi_thread")]
async fn missing_row_is_kept_if_asked_for() {
    let scene = Scene::new(TABLE);
    let cache = rows(100).missing(Duration::from_secs(3600));
    let lookup = open(scene.table("t", &["k"]).columns(["v"]).cache(cache)).await;
    assert_eq!(shown(&lookup.get(&[int(50)]).await), [""; 0]);
    scene.sql("insert into t values (50, 5)");
    assert_eq!(shown(&lookup.get(&[int(50)]).await), [""; 0]);
    assert_eq!(lookup.stats().negative_hits, 1);
    lookup.invalidate_all();
    assert_eq!(shown(&lookup.get(&[int(50)]).await), ["5"]);
}

/// [LKP-05] the answer was read before the change and comes after the invalidation: it is given and not kept.
#[tokio::test(flavor = "multi_thread")]
async fn answer_on_its_way_is_not_kept_when_its_key_becomes_invalid() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let config = by_table(&cut.url(scene.database.url()), "t", &["k"]).columns(["v"]).cache(rows(100));
    let lookup = open(config).await;
    lookup.get(&[int(9)]).await.expect("a connection");
    // The server reads, and its answer is held.
    let rule = cut.when(
        levada_testcontainers::Direction::ToClient,
        levada_testcontainers::Trigger::before([b'D']),
        levada_testcontainers::Action::Hold,
    );
    let asked = lookup.clone();
    let call = tokio::spawn(async move { asked.get(&[int(1)]).await });
    until("the answer is held", move || rule.has_fired()).await;
    scene.sql("update t set v = 100 where k = 1");
    lookup.invalidate(&[int(1)]).expect("a key");
    cut.release();
    assert_eq!(shown(&call.await.expect("no panic")), ["1"]);
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
}

/// [LKP-05] a change is seen soon after its commit.
#[tokio::test(flavor = "multi_thread")]
async fn notification_makes_its_key_invalid() {
    let scene = Scene::new(TABLE);
    let lookup =
        open(scene.table("t", &["k"]).columns(["v"]).cache(rows(100)).invalidated_by("t changed")).await;
    for key in [1, 2] {
        lookup.get(&[int(key)]).await.expect("a row");
    }
    scene.sql("update t set v = 100 where k = 1");
    let told = lookup.clone();
    until("the notification", move || told.stats().invalidated == 1).await;
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
    assert_eq!(shown(&lookup.get(&[int(2)]).await), ["2"]);
    assert_eq!(lookup.stats().hits, 1, "the other one was kept");
    let cleared = lookup.stats().cleared;
    scene.sql(r#"notify "t changed", 'no number'"#);
    let told = lookup.clone();
    until("everything is invalid", move || told.stats().cleared == cleared + 1).await;
}

/// [LKP-05] nobody tells what changes meanwhile, so nothing is kept until somebody does again.
#[tokio::test(flavor = "multi_thread")]
async fn lost_listener_makes_everything_invalid() {
    let scene = Scene::new(TABLE);
    let lookup =
        open(scene.table("t", &["k"]).columns(["v"]).cache(rows(100)).invalidated_by("t changed")).await;
    lookup.get(&[int(1)]).await.expect("a row");
    let cleared = lookup.stats().cleared;
    // The listener is the connection whose last statement was LISTEN.
    scene.sql("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and query like 'listen%'");
    let told = lookup.clone();
    until("it listens again", move || told.stats().cleared >= cleared + 2).await;
    scene.sql("update t set v = 100 where k = 1");
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
    let told = lookup.clone();
    until("the notification", move || told.stats().invalidated >= 1).await;
}

/// [LKP-05] without a listener nothing is kept.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_while_nobody_listens() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let config = by_table(&cut.url(scene.database.url()), "t", &["k"])
        .columns(["v"])
        .cache(rows(100))
        .invalidated_by("t changed");
    let lookup = open(config).await;
    lookup.get(&[int(1)]).await.expect("a row");
    let cleared = lookup.stats().cleared;
    cut.refuse();
    scene.sql("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and query like 'listen%'");
    let told = lookup.clone();
    until("the loss is seen", move || told.stats().cleared > cleared).await;
    let before = lookup.stats();
    for _ in 0..3 {
        assert_eq!(shown(&lookup.get(&[int(1)]).await), ["1"], "by a connection that it has");
    }
    let after = lookup.stats();
    assert_eq!((after.hits - before.hits, after.queries - before.queries), (0, 3));
    cut.heal();
    let told = lookup.clone();
    until("it listens again", move || told.stats().cleared >= cleared + 2).await;
    for _ in 0..2 {
        lookup.get(&[int(1)]).await.expect("a row");
    }
    assert_eq!(lookup.stats().hits - after.hits, 1);
}

/// [LKP-05] it was read again, but what changes since then is told by nobody: the server is asked.
#[tokio::test(flavor = "multi_thread")]
async fn whole_table_does_not_answer_while_nobody_listens() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let config = by_table(&cut.url(scene.database.url()), "t", &["k"])
        .columns(["v"])
        .preload(Duration::from_secs(3600))
        .invalidated_by("t changed");
    let lookup = open(config).await;
    assert_eq!((shown(&lookup.get(&[int(1)]).await), lookup.stats().hits), (vec!["1".to_owned()], 1));
    let rule = cut.when(Direction::ToServer, Trigger::after("listen"), Action::Hold);
    scene.sql("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and query like 'listen%'");
    let read = lookup.clone();
    until("it was read again, and nobody listens", move || rule.has_fired() && read.stats().loads == 2).await;
    scene.sql("update t set v = 100 where k = 1");
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
    let hits = lookup.stats().hits;
    cut.release();
    let read = lookup.clone();
    until("it listens again", move || read.stats().loads == 3).await;
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
    assert_eq!(lookup.stats().hits - hits, 1, "out of memory again");
}

/// [LKP-05] the whole table, read again, and a key that changed since.
#[tokio::test(flavor = "multi_thread")]
async fn whole_table_is_read_at_the_start_and_again() {
    let scene = Scene::new(TABLE);
    let config = scene.table("t", &["k"]).columns(["v"]).preload(Duration::from_secs(3600));
    let lookup = open(config).await;
    assert_eq!(shown(&lookup.get(&[int(3)]).await), ["3"]);
    assert_eq!(shown(&lookup.get(&[text("77")]).await), [""; 0]);
    assert_eq!((lookup.stats().queries, lookup.kept().0), (0, 9));
    scene.sql("update t set v = 100 where k in (3, 4)");
    lookup.invalidate(&[int(3)]).expect("a key");
    assert_eq!(shown(&lookup.get(&[int(3)]).await), ["100"], "asked for");
    assert_eq!(shown(&lookup.get(&[int(4)]).await), ["4"], "as it was read");
    assert_eq!(lookup.stats().queries, 1);
    lookup.invalidate_all();
    let read = lookup.clone();
    until("it was read again", move || read.stats().loads == 2).await;
    assert_eq!(shown(&lookup.get(&[int(4)]).await), ["100"]);
    assert_eq!(lookup.stats().queries, 1);
}

/// [LKP-05] after each interval; here the shortest one.
#[tokio::test(flavor = "multi_thread")]
async fn whole_table_is_refreshed_by_itself() {
    let scene = Scene::new(TABLE);
    let lookup = open(scene.table("t", &["k"]).columns(["v"]).preload(Duration::from_millis(5))).await;
    scene.sql("update t set v = 100 where k = 1; delete from t where k = 2");
    let now = lookup.stats().loads;
    let read = lookup.clone();
    // One reading may have begun before the change.
    until("two readings", move || read.stats().loads >= now + 2).await;
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
    assert_eq!(shown(&lookup.get(&[int(2)]).await), [""; 0]);
    assert_eq!(lookup.stats().queries, 0);
}

/// [LKP-05] a server that is frozen while it answers holds up one reading, and not those after it.
#[tokio::test(flavor = "multi_thread")]
async fn reading_that_is_not_answered_is_given_up() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut config = by_table(&cut.url(scene.database.url()), "t", &["k"])
        .columns(["v"])
        .preload(Duration::from_millis(5));
    config.load_timeout = Duration::from_millis(500);
    let lookup = open(config).await;
    let failed = lookup.stats().failed_loads;
    // A row of two columns, the first one of four bytes.
    let row = b"D\0\0\0\x16\0\x02\0\0\0\x04";
    let rule = cut.when(Direction::ToClient, Trigger::before(row), Action::Hold);
    let read = lookup.clone();
    until("the reading fails", move || rule.has_fired() && read.stats().failed_loads > failed).await;
    scene.sql("update t set v = 100 where k = 1");
    let now = lookup.stats().loads;
    let read = lookup.clone();
    until("two readings", move || read.stats().loads >= now + 2).await;
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["100"]);
}

/// [LKP-05] which of its parameters a change concerns is known to the query alone.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_notified_makes_all_answers_of_a_query_invalid() {
    let scene = Scene::new("create table t (code text primary key, v int); insert into t values ('AA', 1)");
    let query = scene.query("select v from t where code = upper(:code)");
    let lookup = open(query.cache(rows(100)).invalidated_by("t changed")).await;
    assert_eq!(shown(&lookup.get(&[text("aa")]).await), ["1"]);
    let before = lookup.stats();
    scene.sql(r#"update t set v = 100; notify "t changed", 'AA'"#);
    let told = lookup.clone();
    until("the notification", move || {
        let now = told.stats();
        now.invalidated + now.cleared > before.invalidated + before.cleared
    })
    .await;
    assert_eq!(shown(&lookup.get(&[text("aa")]).await), ["100"]);
    scene.sql("update t set v = 200");
    lookup.invalidate(&[text("AA")]).expect("a key");
    assert_eq!(shown(&lookup.get(&[text("aa")]).await), ["200"]);
}

/// [LKP-02] it asks with the same bytes again, whatever the server takes for equal: the others are still kept.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_lookup_forgets_its_own_key_alone() {
    let scene =
        Scene::new("create table t (k inet primary key, v int); insert into t values ('10.0.0.1', 1)");
    let table = scene.table("t", &["k"]).columns(["v"]);
    for config in [table, scene.query("select v from t where k = :k")] {
        let lookup = open(config.cache(rows(100).missing(Duration::from_secs(3600)))).await;
        assert_eq!(shown(&lookup.get(&[text("10.0.0.1")]).await), ["1"]);
        let again = Miss::Retry { delay: Duration::ZERO, attempts: 2, then: LastMiss::Drop };
        let enrichment = Enrichment::new(lookup.clone(), "t").on_miss(again);
        let record = Row::new(Shape::new(["address"]), vec![text("10.0.0.2")]);
        let enriched = enrichment.enrich(&record, &[text("10.0.0.2")]).await.expect("an answer");
        assert_eq!((enriched, lookup.stats().queries), (Enriched::Dropped, 4));
        assert_eq!(shown(&lookup.get(&[text("10.0.0.1")]).await), ["1"]);
        assert_eq!(lookup.stats().queries, 4, "it was kept");
    }
}

/// [LKP-05] what cannot be kept right is refused.
#[tokio::test(flavor = "multi_thread")]
async fn cache_that_would_be_wrong_is_refused() {
    let scene = Scene::new("create table t (k inet primary key, v int, since timestamptz)");
    let whole = scene.table("t", &["k"]).preload(Duration::from_secs(1));
    let versioned = scene.table("t", &["k"]).version_column("since").cache(rows(1));
    let query = scene.query("select v from t where k = :k").preload(Duration::from_secs(1));
    let useless = scene.table("t", &["k"]).invalidated_by("t");
    for config in [whole, versioned, query, useless] {
        let shown = format!("{config:?}");
        let error = PostgresLookup::open(config).await.expect_err(&shown);
        assert_eq!(error.class(), ErrorClass::Fatal, "{error}");
    }
    // Two texts of one address: everything is forgotten for either.
    scene.sql("insert into t values ('10.0.0.1', 1)");
    let lookup = open(scene.table("t", &["k"]).columns(["v"]).cache(rows(9))).await;
    lookup.get(&[text("10.0.0.1")]).await.expect("a row");
    scene.sql("update t set v = 2");
    lookup.invalidate(&[text("10.0.0.1/32")]).expect("a key");
    assert_eq!(shown(&lookup.get(&[text("10.0.0.1")]).await), ["2"]);
}

/// [LKP-05] many tasks, changes and invalidations: what is read after an invalidation is never older than it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_older_than_an_invalidation_is_given_after_it() {
    let scene = Scene::new(TABLE);
    let lookup = Arc::new(open(scene.table("t", &["k"]).columns(["v"]).cache(rows(100))).await);
    let writer = connect(scene.database.url()).await;
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let lookup = Arc::clone(&lookup);
            tokio::spawn(async move {
                for _ in 0..2000 {
                    lookup.get(&[int(1)]).await.expect("a row");
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for version in 1000..1200_i64 {
        writer
            .execute("update t set v = $1::int4 where k = 1", &[&(version as i32)])
            .await
            .expect("an update");
        lookup.invalidate(&[int(1)]).expect("a key");
        let found = lookup.get(&[int(1)]).await.expect("a row");
        assert_eq!(found[0].get("v"), Some(&Value::Int(version)));
    }
    for reader in readers {
        reader.await.expect("no panic");
    }
}
