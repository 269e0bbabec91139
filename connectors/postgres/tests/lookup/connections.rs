//! Calls share connections; what becomes of both when one gets stuck or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levada_postgres::lookup::LookupError;
use levada_postgres::{PostgresLookup, PostgresLookupConfig};
use levada_testcontainers::{Action, Cut, Direction, PgBouncer, PoolMode, Postgres, Trigger};
use tower_service::Service as _;

use crate::scene::{Scene, by_table, connect, int, open, shown, until, watching};

const TABLE: &str = "create table t (k int primary key, v int); insert into t select n, n * 10 from generate_series(1, 1000) n";

/// Calls of the lookup that the server is working on.
const AT_WORK: &str = "select count(*) from pg_stat_activity where datname = current_database()
    and application_name = 'levada/lookup' and state = 'active'";

/// So many answers are never given: what is added when it is enough.
const END: u64 = 1 << 40;

/// A lookup whose statements the server ends by cancel alone.
fn patient(scene: &Scene, connections: usize, each: usize) -> PostgresLookupConfig {
    let mut config = scene.table("t", &["k"]).columns(["v"]).connections(connections, each);
    config.statement_timeout = Some(Duration::from_secs(600));
    config
}

/// Calls until there are so many connections.
async fn warm(lookup: &PostgresLookup, connections: usize) {
    while lookup.census().in_use < connections {
        let calls = (1..=20).map(|key| {
            let lookup = lookup.clone();
            tokio::spawn(async move { lookup.get(&[int(key)]).await.expect("a row") })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.expect("no panic");
        }
    }
}

/// [LKP-06] the time is over, the server is told, and the pool has its connections back; again and again.
#[tokio::test(flavor = "multi_thread")]
async fn stuck_call_is_cancelled_on_the_server() {
    let scene = Scene::new(TABLE);
    let mut config = patient(&scene, 2, 4).timeout(Duration::from_secs(1));
    // A new connection waits for the lock, too: preparing does.
    config.create_timeout = Duration::from_secs(1);
    let lookup = open(config).await;
    warm(&lookup, 1).await;
    let blocker = connect(scene.database.url()).await;
    for round in 1..=3 {
        blocker.batch_execute("begin; lock t").await.expect("a lock");
        let calls: Vec<_> = (0..6)
            .map(|key| {
                let lookup = lookup.clone();
                tokio::spawn(async move { lookup.get(&[int(key)]).await })
            })
            .collect();
        let mut timed_out = 0;
        for call in calls {
            let error = call.await.expect("no panic").expect_err("no answer");
            // Of the calls behind, some find no room, or a new connection that waits for the lock, too.
            assert!(error.is_retriable(), "{error}");
            timed_out += u64::from(matches!(error, LookupError::Timeout { .. }));
        }
        assert!(timed_out > 0);
        let watch = scene.watching();
        // The lock is still held: it is the cancels that ended them.
        until("nothing runs on the server", move || watch(AT_WORK) == "0").await;
        assert!(lookup.stats().cancelled >= round);
        blocker.batch_execute("commit").await.expect("the end of the lock");
        assert_eq!(shown(&lookup.get(&[int(round as i64)]).await), [(round * 10).to_string()]);
    }
    let census = lookup.census();
    assert!(census.connections <= 2 && census.unanswered == 0, "{census:?}");
    assert_eq!(lookup.stats().closed, 0, "all came back to the pool");
}

/// [LKP-06] a connection that is being made waits for the lock while it prepares; it leaves nothing behind on the server.
#[tokio::test(flavor = "multi_thread")]
async fn connection_that_is_not_made_in_time_leaves_nothing_behind() {
    let scene = Scene::new(TABLE);
    let mut config = patient(&scene, 1, 4).timeout(Duration::from_secs(1));
    config.create_timeout = Duration::from_millis(500);
    let lookup = open(config).await;
    let blocker = connect(scene.database.url()).await;
    blocker.batch_execute("begin; lock t").await.expect("a lock");
    let error = lookup.get(&[int(1)]).await.expect_err("no connection");
    assert!(matches!(error, LookupError::Unreachable { .. }) && error.is_retriable(), "{error:?}");
    let watch = scene.watching();
    until("nothing runs on the server", move || watch(AT_WORK) == "0").await;
    blocker.batch_execute("commit").await.expect("the end of the lock");
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["10"]);
}

/// [LKP-06] a call behind another one is not cancelled: the cancel would hit the other. Its answer is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn call_behind_another_one_is_dropped_when_its_answer_comes() {
    let scene = Scene::new(TABLE);
    let lookup = open(patient(&scene, 1, 8).timeout(Duration::from_secs(60))).await;
    lookup.get(&[int(1)]).await.expect("a row");
    let blocker = connect(scene.database.url()).await;
    blocker.batch_execute("begin; lock t").await.expect("a lock");
    let start = |key| {
        let lookup = lookup.clone();
        tokio::spawn(async move { lookup.get(&[int(key)]).await })
    };
    let sent = |count: u64| {
        let lookup = lookup.clone();
        until("it is sent", move || lookup.stats().queries == count)
    };
    let oldest = start(2);
    sent(2).await;
    let behind = start(3);
    sent(3).await;
    behind.abort();
    let given_up = lookup.clone();
    until("it is given up", move || given_up.stats().given_up == 1).await;
    let waits = start(4);
    // It must wait for the one connection, which takes no new calls.
    tokio::task::yield_now().await;
    let stats = lookup.stats();
    assert_eq!((stats.cancelled, stats.queries), (0, 3));
    blocker.batch_execute("commit").await.expect("the end of the lock");
    assert_eq!(shown(&oldest.await.expect("no panic")), ["20"]);
    assert_eq!(shown(&waits.await.expect("no panic")), ["40"]);
    let stats = lookup.stats();
    assert_eq!((stats.late, stats.closed, stats.connected), (1, 0, 1), "{stats:?}");
}

/// [LKP-06] a cancel or the end of a connection hits calls that still have time: they are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn calls_hit_by_anothers_end_are_sent_again() {
    let scene = Scene::new(TABLE);
    for end in ["pg_cancel_backend(pid)", "pg_terminate_backend(pid, 5000)"] {
        let lookup = open(patient(&scene, 2, 8).timeout(Duration::from_secs(60))).await;
        lookup.get(&[int(1)]).await.expect("a row");
        let blocker = connect(scene.database.url()).await;
        blocker.batch_execute("begin; lock t").await.expect("a lock");
        let calls: Vec<_> = (10..16)
            .map(|key| {
                let lookup = lookup.clone();
                tokio::spawn(async move { lookup.get(&[int(key)]).await })
            })
            .collect();
        let sent = lookup.clone();
        until("all are sent", move || sent.stats().queries == 7).await;
        let watch = scene.watching();
        until("the server works", move || watch(AT_WORK) != "0").await;
        scene.sql(&format!(
            "select {end} from pg_stat_activity where datname = current_database()
             and application_name = 'levada/lookup' and state = 'active'"
        ));
        let again = lookup.clone();
        until("some are sent again", move || again.stats().resent > 0).await;
        blocker.batch_execute("commit").await.expect("the end of the lock");
        for (key, call) in (10..16).zip(calls) {
            assert_eq!(shown(&call.await.expect("no panic")), [(key * 10).to_string()], "{end}");
        }
        assert_eq!(lookup.stats().given_up, 0);
    }
}

/// [LKP-06] and the next call finds a connection that lives.
#[tokio::test(flavor = "multi_thread")]
async fn connection_that_never_answers_is_closed() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut config = by_table(&cut.url(scene.database.url()), "t", &["k"])
        .columns(["v"])
        .connections(1, 8)
        .timeout(Duration::from_millis(200));
    config.drain_timeout = Duration::from_millis(200);
    let lookup = open(config).await;
    lookup.get(&[int(1)]).await.expect("a row");
    let rule = cut.when(Direction::ToServer, Trigger::after_bytes(0), Action::Hold);
    let error = lookup.get(&[int(2)]).await.expect_err("no answer");
    assert!(matches!(error, LookupError::Timeout { .. }) && rule.has_fired(), "{error}");
    let closed = lookup.clone();
    until("it is closed", move || closed.stats().closed == 1).await;
    assert_eq!(shown(&lookup.get(&[int(2)]).await), ["20"]);
    assert_eq!(lookup.stats().connected, 2);
}

/// [LKP-06] a connection that died without a word is found before a call is lost on it.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connection_is_asked_before_it_is_used() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut config = by_table(&cut.url(scene.database.url()), "t", &["k"]).columns(["v"]).connections(1, 8);
    config.idle_check = Duration::ZERO;
    config.recycle_timeout = Duration::from_millis(100);
    let lookup = open(config.timeout(Duration::from_secs(60))).await;
    lookup.get(&[int(1)]).await.expect("a row");
    cut.when(Direction::ToServer, Trigger::after_bytes(0), Action::Hold);
    assert_eq!(shown(&lookup.get(&[int(2)]).await), ["20"]);
    let stats = lookup.stats();
    assert_eq!((stats.queries, stats.connected, stats.given_up), (2, 2, 0), "no call was sent on it");
}

/// [LKP-06]
#[tokio::test(flavor = "multi_thread")]
async fn exhausted_pool_says_so() {
    let scene = Scene::new(TABLE);
    let mut config = patient(&scene, 1, 2).timeout(Duration::from_secs(60));
    config.wait_timeout = Duration::from_millis(100);
    let lookup = open(config).await;
    lookup.get(&[int(1)]).await.expect("a row");
    let blocker = connect(scene.database.url()).await;
    blocker.batch_execute("begin; lock t").await.expect("a lock");
    let stuck: Vec<_> = (2..4)
        .map(|key| {
            let lookup = lookup.clone();
            tokio::spawn(async move { lookup.get(&[int(key)]).await })
        })
        .collect();
    let sent = lookup.clone();
    until("the connection is full", move || sent.stats().queries == 3).await;
    let error = lookup.get(&[int(4)]).await.expect_err("no room");
    assert!(
        matches!(error, LookupError::Exhausted { connections: 1, each: 2, draining: 0, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("exhausted"), "{error}");
    blocker.batch_execute("commit").await.expect("the end of the lock");
    for call in stuck {
        call.await.expect("no panic").expect("a row");
    }
    assert_eq!(shown(&lookup.get(&[int(4)]).await), ["40"]);
}

/// [LKP-06] 200 calls, and never more than the connections that are allowed.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_pipelined_on_few_connections() {
    let scene = Scene::new(TABLE);
    let lookup = open(patient(&scene, 3, 8).timeout(Duration::from_secs(60))).await;
    warm(&lookup, 3).await;
    let before = lookup.stats().queries;
    let blocker = connect(scene.database.url()).await;
    blocker.batch_execute("begin; lock t").await.expect("a lock");
    let calls: Vec<_> = (1..=200)
        .map(|key| {
            let lookup = lookup.clone();
            tokio::spawn(async move { lookup.get(&[int(key)]).await })
        })
        .collect();
    let full = lookup.clone();
    until("all connections are full", move || full.census().unanswered == 24).await;
    assert_eq!((lookup.census().connections, lookup.stats().queries - before), (3, 24));
    blocker.batch_execute("commit").await.expect("the end of the lock");
    for (key, call) in (1..=200).zip(calls) {
        assert_eq!(shown(&call.await.expect("no panic")), [(key * 10).to_string()]);
    }
    assert_eq!(lookup.census().connections, 3);
}

/// [LKP-06] every connection has prepared it as it was, and none knows better before its next query.
#[tokio::test(flavor = "multi_thread")]
async fn changed_column_is_found_whichever_connections_a_call_comes_to() {
    let scene = Scene::new(TABLE);
    let lookup = open(patient(&scene, 3, 8).timeout(Duration::from_secs(60))).await;
    warm(&lookup, 3).await;
    scene.sql("alter table t alter column v type numeric(9,2)");
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["10.00"]);
}

/// A lookup with four connections where one key of a batch fails, so that it is sent by halves, and the next ones get stuck.
async fn half_stuck(scene: &Scene, limit: Duration) -> PostgresLookup {
    let query = "select 100 / (:n::int - 50) as quotient,
        pg_sleep(case when :n::int between 51 and 59 then 600 else 0 end)::text as slept";
    let mut config = scene.query(query).connections(4, 8).timeout(limit);
    config.statement_timeout = Some(Duration::from_secs(600));
    let lookup = open(config).await;
    warm(&lookup, 4).await;
    lookup
}

/// [LKP-06] its keys that were not sent yet take no connection each out of use.
#[tokio::test(flavor = "multi_thread")]
async fn batch_whose_time_is_over_is_given_up_once() {
    let scene = Scene::new(TABLE);
    let lookup = half_stuck(&scene, Duration::from_secs(2)).await;
    let keys: Vec<_> = (0..100).map(|key| [int(key)]).collect();
    let found = lookup.get_many(&keys).await;
    assert_eq!(lookup.stats().given_up, 1);
    for (key, found) in found.iter().enumerate() {
        match key {
            0..50 => assert!(found.is_ok(), "{key}: {found:?}"),
            50 => assert!(matches!(found, Err(LookupError::Server { .. })), "{found:?}"),
            _ => assert!(matches!(found, Err(LookupError::Timeout { .. })), "{key}: {found:?}"),
        }
    }
}

/// [LKP-06] the same when whoever has asked goes away.
#[tokio::test(flavor = "multi_thread")]
async fn batch_that_nobody_waits_for_is_given_up_once() {
    let scene = Scene::new(TABLE);
    let lookup = half_stuck(&scene, Duration::from_secs(60)).await;
    let asked = lookup.clone();
    let call = tokio::spawn(async move {
        let keys: Vec<_> = (0..100).map(|key| [int(key)]).collect();
        asked.get_many(&keys).await
    });
    let watch = scene.watching();
    let stuck =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    until("a key is stuck", move || watch(stuck) == "1").await;
    call.abort();
    let back = lookup.clone();
    until("all connections are back", move || {
        let census = back.census();
        back.stats().given_up > 0 && census.in_use + census.idle == 4
    })
    .await;
    assert_eq!(lookup.stats().given_up, 1);
}

/// [LKP-06] the server restarts, and is killed, under load: every call has one right answer.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_resume_when_the_server_is_back() {
    let postgres = Postgres::start().expect("a server");
    postgres.psql(TABLE).expect("a table");
    let config = by_table(postgres.url(), "t", &["k"]).columns(["v"]).timeout(Duration::from_secs(60));
    let lookup = open(config).await;
    let answered = Arc::new(AtomicU64::new(0));
    let calls: Vec<_> = (0..40_u64)
        .map(|task| {
            let (lookup, answered) = (lookup.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                // Until the test has seen enough.
                for call in 0.. {
                    let base = ((task * 37 + call * 11) % 990 + 1) as i64;
                    match call % 4 {
                        0 => {
                            let keys: Vec<[levada_core::Value; 1]> =
                                (0..10).map(|more| [int(base + more)]).collect();
                            let found = lookup.get_many(&keys).await;
                            assert_eq!(found.len(), 10);
                            for (more, found) in (0..10).zip(&found) {
                                assert_eq!(shown(found), [((base + more) * 10).to_string()]);
                            }
                        }
                        _ => assert_eq!(shown(&lookup.get(&[int(base)]).await), [(base * 10).to_string()]),
                    }
                    if answered.fetch_add(1, Ordering::SeqCst) >= END {
                        break;
                    }
                }
            })
        })
        .collect();
    let more = |count: u64| {
        let (answered, from) = (Arc::clone(&answered), answered.load(Ordering::SeqCst));
        until("answers", move || answered.load(Ordering::SeqCst) >= from + count)
    };
    more(500).await;
    postgres.restart().expect("a restart");
    more(500).await;
    postgres.kill();
    postgres.restart().expect("a restart");
    more(500).await;
    answered.fetch_add(END, Ordering::SeqCst);
    for call in calls {
        call.await.expect("every call was answered, and right");
    }
    let (stats, census) = (lookup.stats(), lookup.census());
    assert!(stats.resent > 0 && stats.given_up == 0, "{stats:?}");
    assert!(census.connections <= 4 && census.unanswered == 0, "{census:?}");
    let watch = watching(postgres.url());
    assert_eq!(watch(AT_WORK), "0");
}

/// [LKP-06] what waiting does not mend is told at once.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_stays_away_is_told_with_its_cause() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let config = by_table(&cut.url(scene.database.url()), "t", &["k"]).columns(["v"]);
    let lookup = open(config.timeout(Duration::from_secs(2))).await;
    lookup.get(&[int(1)]).await.expect("a row");
    cut.refuse();
    cut.cut_all();
    let error = lookup.get(&[int(2)]).await.expect_err("no server");
    assert!(matches!(error, LookupError::Unreachable { .. }) && error.is_retriable(), "{error:?}");
    cut.heal();
    assert_eq!(shown(&lookup.get(&[int(2)]).await), ["20"]);
}

/// [LKP-06] what waiting does not mend is told to those who wait, and to none who come when it is mended.
#[tokio::test(flavor = "multi_thread")]
async fn refused_login_is_told_as_long_as_it_is_refused() {
    let scene = Scene::new(TABLE);
    let role = format!("{}_reader", scene.database.name());
    scene.sql(&format!("create role {role} login password 'secret'; grant select on t to {role}"));
    let mut config = scene.table("t", &["k"]).columns(["v"]).timeout(Duration::from_secs(60));
    config.connection.user(&role).password("secret");
    let lookup = open(config).await;
    assert_eq!(shown(&lookup.get(&[int(1)]).await), ["10"]);
    scene.sql(&format!(
        "alter role {role} nologin;
         select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = '{role}'"
    ));
    let error = lookup.get(&[int(2)]).await.expect_err("no login");
    assert!(matches!(error, LookupError::Unreachable { .. }) && !error.is_retriable(), "{error:?}");
    scene.sql(&format!("alter role {role} login"));
    assert_eq!(shown(&lookup.get(&[int(2)]).await), ["20"]);
    scene.sql(&format!("drop owned by {role}; drop role {role}"));
}

/// [LKP-06] a server that is frozen, behind a peer that still acknowledges: each step of the start has its limit.
#[tokio::test(flavor = "multi_thread")]
async fn start_does_not_wait_for_a_silent_server() {
    let scene = Scene::new(TABLE);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let url = cut.url(scene.database.url());
    let table = || by_table(&url, "t", &["k"]).columns(["v"]);
    let listening = || table().preload(Duration::from_secs(3600)).invalidated_by("t changed");
    let query = || {
        let connection = url.parse().expect("a URL");
        PostgresLookupConfig::by_query(connection, "select v from t where k = :k")
    };
    for (config, held, opens) in [
        // Connecting is tried again.
        (table(), "set default_transaction_read_only", true),
        (table(), "from pg_class as c", false),
        (query(), "select v from t", false),
        (table(), "from unnest($1", false),
        // The plan is no condition.
        (table(), "explain (format json)", true),
        (listening(), "listen", false),
    ] {
        let rule = cut.when(Direction::ToServer, Trigger::after(held), Action::Hold);
        let opening = PostgresLookup::open(config.timeout(Duration::from_millis(500)));
        let opened = tokio::time::timeout(Duration::from_secs(30), opening).await.expect(held);
        assert!(rule.has_fired(), "{held}");
        match opened {
            Ok(_) => assert!(opens, "{held}"),
            Err(error) => assert!(!opens && error.is_retriable(), "{held}: {error:?}"),
        }
    }
}

/// [LKP-06] behind a pooler that keeps a server's connection for a client's.
#[tokio::test(flavor = "multi_thread")]
async fn lookup_works_behind_a_session_pooler() {
    let postgres = Postgres::start().expect("a server");
    postgres.psql(TABLE).expect("a table");
    let pooler = PgBouncer::builder(&postgres).pool_mode(PoolMode::Session).start().expect("a pooler");
    let mut config = by_table(pooler.url(), "t", &["k"]).columns(["v"]).timeout(Duration::from_secs(1));
    config.statement_timeout = Some(Duration::from_secs(600));
    let lookup = open(config).await;
    let first = lookup.get(&[int(1)]).await;
    assert!(first.is_ok(), "{first:?}\n{}", pooler.logs());
    let blocker = connect(postgres.url()).await;
    blocker.batch_execute("begin; lock t").await.expect("a lock");
    lookup.get(&[int(2)]).await.expect_err("no answer");
    let watch = watching(postgres.url());
    until("the cancel has passed", move || watch(AT_WORK) == "0").await;
    blocker.batch_execute("commit").await.expect("the end of the lock");
    assert_eq!(shown(&lookup.get(&[int(2)]).await), ["20"]);
}

/// [LKP-10]
#[tokio::test(flavor = "multi_thread")]
async fn lookup_is_a_service() {
    let scene = Scene::new(TABLE);
    let mut lookup = open(scene.table("t", &["k"]).columns(["v"])).await;
    std::future::poll_fn(|context| lookup.poll_ready(context)).await.expect("always ready");
    let (one, two) = (lookup.call(vec![int(1)]), lookup.call(vec![int(2)]));
    assert_eq!(shown(&two.await), ["20"]);
    assert_eq!(shown(&one.await), ["10"]);
}
