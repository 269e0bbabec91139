//! Other writers on the same rows, and rows that the server refuses.

use std::collections::HashMap;
use std::time::Duration;

use levada_core::{AtomicSink, ErrorClass, Keyed, Sink, SinkContext, Value};
use levada_postgres::{PostgresSink, Tombstone};

use crate::scene::{
    Scene, assignment, batch, batch_of, chain, connect, delete, number, ready, send, text, until, upsert,
};

const WRITERS: i64 = 4;
const ROUNDS: i64 = 30;
const SHARED_KEYS: i64 = 50;

/// What a writer does to the shared keys in one round: the key, and whether it is deleted. Each key comes twice.
fn shared_changes(writer: i64, round: i64) -> Vec<(i64, bool)> {
    let change = |place: i64| {
        let id = (place * (7 + 2 * writer) + round * 13 + writer) % SHARED_KEYS;
        (id, (place + writer) % 5 == 0)
    };
    (0..2 * SHARED_KEYS).map(change).collect()
}

/// [PGS-17] four writers on the same rows: every commit passes, and the last word of each key is somebody's last word.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_writers_on_the_same_rows_lose_nothing() {
    let scene = Scene::new("create table t (id int primary key, writer int, n int)");
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let config = scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete);
        writers.push(tokio::spawn(async move {
            let mut sink = PostgresSink::new(config);
            sink.open(SinkContext { job: format!("writer {writer}"), subtask: 0, parallelism: 1 })
                .await
                .expect("open");
            sink.claim(&assignment(1)).await.expect("claim");
            let mut offset = 0;
            for round in 0..ROUNDS {
                // Shared keys in an order of each writer's own, and one key that is his alone.
                let shared = shared_changes(writer, round).into_iter().map(|(id, is_delete)| {
                    let key = [("id", Value::Int(id))];
                    match is_delete {
                        true => delete(&key),
                        false => upsert(&key, &[("writer", Value::Int(writer)), ("n", Value::Int(round))]),
                    }
                });
                let mut changes: Vec<Keyed> = shared.collect();
                let own = [("id", Value::Int(1000 + writer * 100 + round))];
                changes.push(upsert(&own, &[("writer", Value::Int(writer))]));
                let count = changes.len() as u64;
                let committed = send(&mut sink, offset, changes).await.expect("commit");
                assert_eq!(committed.total(), count, "the balance closes");
                offset += count;
            }
        }));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    assert_eq!(scene.row("select count(*) from t where id >= 1000"), "120");
    // Every round has every shared key, so whoever was last at one was in his last round.
    let found: HashMap<i64, String> = scene
        .rows("select id, concat(writer, '/', n) from t where id < 1000")
        .iter()
        .filter_map(|row| row.split_once('|'))
        .map(|(id, word)| (id.parse().expect("an id"), word.to_owned()))
        .collect();
    for id in 0..SHARED_KEYS {
        let last_words: Vec<Option<String>> = (0..WRITERS)
            .map(|writer| {
                let changes = shared_changes(writer, ROUNDS - 1);
                let (_, is_delete) = changes.iter().rfind(|change| change.0 == id).expect("every key");
                (!is_delete).then(|| format!("{writer}/{}", ROUNDS - 1))
            })
            .collect();
        let found = found.get(&id).cloned();
        assert!(last_words.contains(&found), "key {id} is {found:?}, and the last words were {last_words:?}");
    }
    assert_eq!(scene.row("select distinct next from levada.positions"), "3030");
}

/// [PGS-17] [PGS-19] a lock that is held longer than `lock_timeout` is tried for again.
#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_is_retried() {
    let scene = Scene::new("create table t (id int primary key, a text); insert into t values (1, 'old')");
    let holder = connect(scene.database.url(), "holder").await;
    holder.batch_execute("begin; update t set a = 'held'").await.expect("a lock");
    let mut config = scene.upsert("t").key(["id"]);
    config.lock_timeout = Duration::from_millis(100);
    let mut sink = ready(config).await;
    let commit = tokio::spawn(async move {
        send(&mut sink, 0, vec![upsert(&[("id", number("1"))], &[("a", text("new"))])]).await.map(|_| sink)
    });
    let watching = scene.watching();
    let mut attempts = std::collections::BTreeSet::new();
    until("three attempts", move || {
        let waiting = "select backend_xid from pg_stat_activity where application_name = 'levada/job/0' and wait_event_type = 'Lock' and datname = current_database()";
        attempts.insert(watching(waiting));
        attempts.remove("");
        attempts.len() >= 3
    })
    .await;
    holder.batch_execute("commit").await.expect("commit");
    let sink = commit.await.expect("the task").expect("commit");
    assert!(sink.stats().retries["55P03"] >= 2, "{:?}", sink.stats());
    assert_eq!(scene.row("select a from t"), "new");
}

/// [PGS-17] and not for ever.
#[tokio::test(flavor = "multi_thread")]
async fn retries_are_bounded() {
    let scene = Scene::new("create table t (id int primary key); insert into t values (1)");
    let holder = connect(scene.database.url(), "holder").await;
    holder.batch_execute("begin; select from t for update").await.expect("a lock");
    let mut config = scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete);
    config.lock_timeout = Duration::from_millis(20);
    config.max_retries = 3;
    let mut sink = ready(config).await;
    let (rows, positions) = batch(0, vec![delete(&[("id", number("1"))])]);
    sink.write(rows).await.expect("write");
    let error = sink.commit(&positions).await.expect_err("the lock is held");
    assert_eq!(error.class, ErrorClass::Retry, "{}", chain(&error));
    assert!(chain(&error).contains("55P03"), "{}", chain(&error));
    assert_eq!(sink.stats().retries["55P03"], 3);
    assert_eq!(sink.pending().rows, 1, "the interval is kept");
    holder.batch_execute("rollback").await.expect("rollback");
    sink.commit(&positions).await.expect("commit");
    assert_eq!(scene.row("select count(*) from t"), "0");
}

/// [PGS-20] the sink's part: the first bad record in the order of writing, found by halving.
#[tokio::test(flavor = "multi_thread")]
async fn record_that_the_server_refuses_is_found() {
    let scene = Scene::new(
        "create table parent (id int primary key); insert into parent values (1);
         create table t (id int primary key, n int constraint small check (n < 1000), p int references parent deferrable initially deferred,
             required int not null default 1, s text unique)",
    );
    let mut sink = ready(scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete)).await;
    let good = |id: i64| upsert(&[("id", Value::Int(-id))], &[("n", Value::Int(id % 1000))]);
    let bad: Vec<(&str, Keyed, &str)> = vec![
        ("23514", upsert(&[("id", Value::Int(5))], &[("n", Value::Int(987_654_321))]), "small"),
        ("23503", upsert(&[("id", Value::Int(5))], &[("p", Value::Int(987_654_321))]), "t_p_fkey"),
        ("23505", upsert(&[("id", Value::Int(5))], &[("s", text("987654321"))]), "t_s_key"),
    ];
    for (code, change, place) in bad {
        let count = 300;
        let mut changes: Vec<Keyed> = (0..count).map(good).collect();
        changes.insert(10, upsert(&[("id", Value::Int(4))], &[("s", text("987654321"))]));
        changes.insert(217, change.clone());
        changes.insert(250, change);
        // What comes later for the same key does not excuse it unless it hides it.
        let probes = sink.stats().probes;
        let (rows, positions) = batch_of(0, 1000, changes);
        sink.write(rows).await.expect("write");
        let error = sink.commit(&positions).await.expect_err("a bad record");
        assert_eq!(error.class, ErrorClass::BadRecord, "{}", chain(&error));
        assert_eq!(
            error.coordinates.as_ref().expect("coordinates").to_string(),
            "orders-0@1217",
            "{}",
            chain(&error)
        );
        let shown = format!("{} {error:?}", chain(&error));
        assert!(shown.contains(code) && shown.contains(place), "{code}, {place} in {shown}");
        assert!(!shown.contains("987654321"), "no value: {shown}");
        let most = u64::from((count as u64 + 3).next_power_of_two().trailing_zeros()) + 1;
        assert!(sink.stats().probes - probes <= most, "{} probes", sink.stats().probes - probes);
        assert_eq!(scene.row("select count(*) from t"), "0", "nothing was committed");
        sink.discard();
    }
    // A bad change that a later one of its key replaces is never sent.
    let hidden = vec![
        upsert(&[("id", Value::Int(5))], &[("n", Value::Int(987_654_321))]),
        upsert(&[("id", Value::Int(5))], &[("n", Value::Int(7))]),
    ];
    send(&mut sink, 0, hidden).await.expect("commit");
    assert_eq!(scene.row("select id, n from t"), "5|7");
}
