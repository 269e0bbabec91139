//! The server goes away, and comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use levada_core::{AtomicSink, ErrorClass, Sink};
use levada_postgres::{Health, PostgresSink, WriteMode};
use levada_testcontainers::Postgres;

use crate::scene::{
    Scene, assignment, batch, chain, config, connect, keyless, number, opened, ready, send, until,
};

const LOG: &str = "create table log (a int)";

fn one(n: u64) -> Vec<levada_core::Keyed> {
    vec![keyless(&[("a", number(&n.to_string()))])]
}

fn all(count: u64) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// [PGS-02] [PGS-18] a connection that died between two commits costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn commit_survives_a_connection_that_died_before_it() {
    let scene = Scene::new(LOG);
    let mut sink = ready(scene.insert("log")).await;
    send(&mut sink, 0, one(0)).await.expect("commit");
    scene.end_backends("levada/job/0");
    send(&mut sink, 1, one(1)).await.expect("commit");
    assert_eq!(scene.rows("select * from log order by 1"), all(2));
    assert_eq!(sink.stats().reconnects, 1);
    assert_eq!(scene.row("select epoch from levada.positions"), "2", "claimed again");
}

/// [PGS-02] [PGS-03] [TPL-17] backends ended at any moment: no row twice, none missing, without a key.
#[tokio::test(flavor = "multi_thread")]
async fn ended_backends_neither_double_nor_lose_rows() {
    let scene = Scene::new(LOG);
    let mut sink = ready(scene.insert("log")).await;
    let done = Arc::new(AtomicBool::new(false));
    let assassin = {
        let client = connect(scene.database.url(), "assassin").await;
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            let kill = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'levada/job/0'";
            let mut rhythm = tokio::time::interval(Duration::from_millis(3));
            while !done.load(Ordering::Relaxed) {
                rhythm.tick().await;
                client.query(kill, &[]).await.expect("the assassin's own connection");
                rhythm.reset_after(Duration::from_millis(rand_below(40)));
            }
        })
    };
    let mut sent = 0;
    // On a busy machine it may take a while until he has his turn.
    while sent < 200 || sink.stats().reconnects <= 3 {
        send(&mut sink, sent, one(sent)).await.expect("commit");
        sent += 1;
        assert!(sent < 100_000, "the assassin never came: {:?}", sink.stats());
    }
    done.store(true, Ordering::Relaxed);
    assassin.await.expect("the assassin");
    assert_eq!(scene.rows("select * from log order by 1"), all(sent));
}

fn rand_below(limit: u64) -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish() % limit + 1
}

/// [PGS-03] [PGS-18] the server stops without a checkpoint, again and again, and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn immediate_restarts_neither_double_nor_lose_rows() {
    let server = Arc::new(Postgres::start().expect("a server"));
    server.psql(LOG).expect("a table");
    let mut configured = config(server.url(), "log", WriteMode::Insert);
    configured.reconnect_pause = Duration::from_millis(200);
    let mut sink = ready(configured).await;
    let health = sink.health();
    let progress = Arc::new(AtomicU64::new(0));
    let restarts = {
        let (server, progress) = (Arc::clone(&server), Arc::clone(&progress));
        tokio::task::spawn_blocking(move || {
            for _ in 0..4 {
                let seen = progress.load(Ordering::Relaxed);
                let moves_on = || progress.load(Ordering::Relaxed) > seen + 20;
                levada_testcontainers::wait_until(Duration::from_secs(60), "commits", moves_on)
                    .expect("progress");
                server.stop_immediate().expect("stop");
                server.restart().expect("restart");
            }
        })
    };
    let mut sent = 0;
    while !restarts.is_finished() {
        send(&mut sink, sent, one(sent)).await.expect("commit");
        sent += 1;
        progress.store(sent, Ordering::Relaxed);
    }
    restarts.await.expect("restarts");
    assert!(sink.stats().reconnects >= 4);
    send(&mut sink, sent, one(sent)).await.expect("commit");
    assert_eq!(*health.borrow(), Health::Connected);
    let rows = server.psql("select * from log order by 1").expect("rows");
    assert_eq!(rows.lines().collect::<Vec<_>>(), all(sent + 1));
}

/// [PGS-18] a paused commit says so, and goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn outage_is_waited_out_and_shown_as_degraded() {
    let server = Postgres::start().expect("a server");
    server.psql(LOG).expect("a table");
    let mut sink = ready(config(server.url(), "log", WriteMode::Insert)).await;
    let mut health = sink.health();
    server.kill();
    let commit = tokio::spawn(async move { send(&mut sink, 0, one(0)).await.map(|_| sink) });
    health.wait_for(|health| matches!(health, Health::Degraded { .. })).await.expect("degraded");
    server.restart().expect("restart");
    let sink = commit.await.expect("the task").expect("commit");
    assert_eq!(*health.borrow(), Health::Connected);
    assert_eq!(sink.stats().flushes, 1);
    assert_eq!(server.psql("select * from log").expect("rows").trim(), "0");
}

/// [PGS-18] [PGS-02] a frozen server, whose sockets stay open and take what is sent, is noticed as well.
#[tokio::test(flavor = "multi_thread")]
async fn frozen_server_is_noticed_and_waited_out() {
    let server = Postgres::start().expect("a server");
    server.psql(LOG).expect("a table");
    let mut configured = config(server.url(), "log", WriteMode::Insert);
    configured.statement_timeout = Duration::from_secs(1);
    configured.reconnect_pause = Duration::from_millis(200);
    configured.connection.connect_timeout(Duration::from_secs(1));
    let mut sink = ready(configured).await;
    send(&mut sink, 0, one(0)).await.expect("commit");
    let mut health = sink.health();
    server.pause().expect("pause");
    let commit = tokio::spawn(async move { send(&mut sink, 1, one(1)).await.map(|_| sink) });
    health.wait_for(|health| matches!(health, Health::Degraded { .. })).await.expect("degraded");
    server.resume().expect("resume");
    commit.await.expect("the task").expect("commit");
    assert_eq!(server.psql("select a from log order by 1").expect("rows").trim(), "0\n1");
}

/// [PGS-18] 25006 (as after a failover to a standby) and 53300 are outages.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_server_and_used_up_connections_are_waited_for() {
    let scene = Scene::new(LOG);
    let role = levada_testcontainers::unique_name("app").replace('-', "_");
    scene.database.psql(&format!("create role {role} login password 'x'; grant all on database {} to {role}; grant all on log to {role}", scene.database.name())).expect("a role");
    let mut configured = scene.insert("log");
    configured.connection.user(&role).password("x");
    configured.reconnect_pause = Duration::from_millis(200);
    let mut sink = ready(configured).await;
    let mut sent = 0;
    let outages = [
        (
            "25006",
            format!("alter role {role} set default_transaction_read_only = on"),
            format!("alter role {role} reset all"),
        ),
        (
            "53300",
            format!("alter role {role} connection limit 0"),
            format!("alter role {role} connection limit -1"),
        ),
    ];
    for (code, begin, end) in outages {
        scene.database.psql(&begin).expect("an outage");
        scene.end_backends("levada/job/0");
        let mut health = sink.health();
        let commit = tokio::spawn(async move { send(&mut sink, sent, one(sent)).await.map(|_| sink) });
        let named = |health: &Health| matches!(health, Health::Degraded { reason } if reason.contains(code));
        tokio::time::timeout(Duration::from_secs(20), health.wait_for(named))
            .await
            .expect("in time")
            .expect("degraded");
        scene.database.psql(&end).expect("the end of the outage");
        sink = commit.await.expect("the task").expect("commit");
        sent += 1;
    }
    assert_eq!(scene.rows("select * from log order by 1"), all(sent));
    drop(sink);
    scene.database.psql(&format!("drop owned by {role} cascade; drop role {role}")).expect("cleaning up");
}

/// [PGS-18] what waiting does not change is an error at once, without the password.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_password_and_unknown_database_are_fatal() {
    let scene = Scene::new(LOG);
    let mut wrong_password = scene.insert("log");
    wrong_password.connection.user("nobody_here").password("hunter2");
    let mut wrong_database = scene.insert("log");
    wrong_database.connection.dbname("nowhere");
    for (config, part) in [(wrong_password, "nobody_here"), (wrong_database, "nowhere")] {
        let mut sink = PostgresSink::new(config);
        let error = sink.open(crate::scene::context()).await.expect_err("no way in");
        assert_eq!(error.class, ErrorClass::Fatal, "{}", chain(&error));
        assert!(chain(&error).contains(part), "{}", chain(&error));
        assert!(!format!("{error:?} {}", chain(&error)).contains("hunter2"));
    }
}

/// [PGS-18] a server that is not there yet is waited for at first, but not for ever: the address may be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn opening_gives_up_after_its_timeout() {
    let mut config = config("postgres://postgres@127.0.0.1:1/postgres", "log", WriteMode::Insert);
    config.open_timeout = Duration::from_millis(300);
    let mut sink = PostgresSink::new(config);
    let error = sink.open(crate::scene::context()).await.expect_err("nobody there");
    assert_eq!(error.class, ErrorClass::Reconnect);
}

/// [PGS-18] a server that takes connections and says nothing is away as well, and is not waited for without end.
#[tokio::test(flavor = "multi_thread")]
async fn opening_gives_up_on_a_server_that_does_not_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address");
    let mut config = config(&format!("postgres://postgres@{address}/postgres"), "log", WriteMode::Insert);
    config.connection.connect_timeout(Duration::from_millis(200));
    config.open_timeout = Duration::from_millis(300);
    let mut sink = PostgresSink::new(config);
    let opening = tokio::time::timeout(Duration::from_secs(30), sink.open(crate::scene::context())).await;
    let error = opening.expect("in time").expect_err("no answer");
    assert_eq!(error.class, ErrorClass::Reconnect, "{}", chain(&error));
    assert!(chain(&error).contains("did not answer"), "{}", chain(&error));
}

/// [PGS-02] a commit whose future was dropped leaves its outcome to the next claim.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_commit_is_resolved_by_the_next_claim() {
    let scene = Scene::new("create table t (id int primary key)");
    let mut sink = ready(scene.insert("t").key(["id"])).await;
    let blocker = connect(scene.database.url(), "blocker").await;
    blocker.batch_execute("begin; insert into t values (1)").await.expect("a lock");
    let row = |n: &str| vec![crate::scene::upsert(&[("id", number(n))], &[])];
    let (rows, positions) = batch(0, row("1"));
    sink.write(rows).await.expect("write");
    let watching = scene.watching();
    {
        let commit = sink.commit(&positions);
        let waiting = until("the commit to wait for the lock", move || {
            watching(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'levada/job/0' and datname = current_database()",
            ) == "1"
        });
        tokio::select! {
            _ = commit => panic!("the row is locked"),
            () = waiting => {}
        }
    }
    let error = sink.commit(&positions).await.expect_err("the outcome is unknown");
    assert_eq!(error.class, ErrorClass::Fatal);
    blocker.batch_execute("rollback").await.expect("rollback");
    sink.discard();
    let stored = sink.claim(&assignment(1)).await.expect("claim");
    let next = stored.get(&crate::scene::split(0)).expect("a position").next;
    assert_eq!(
        scene.row("select count(*) from t"),
        next.to_string(),
        "position and rows agree, whichever it was"
    );
    send(&mut sink, next, row("2")).await.expect("commit");
    let _ = opened(scene.insert("t").key(["id"])).await;
}

/// [PGS-02] the commit is on disk and its answer is lost, and so are the answers of claims after it.
///
/// A standby that never answers holds a commit up after it was made durable; ending the backend there is the lost
/// answer.
#[tokio::test(flavor = "multi_thread")]
async fn commit_whose_answer_was_lost_is_recognised_by_its_position() {
    let server = Arc::new(Postgres::start().expect("a server"));
    server.psql(LOG).expect("a table");
    let mut configured = config(server.url(), "log", WriteMode::Insert);
    configured.reconnect_pause = Duration::from_millis(200);
    configured.claim_patience = Duration::from_secs(60);
    let mut sink = ready(configured).await;
    send(&mut sink, 0, one(0)).await.expect("commit");
    server.psql("alter system set synchronous_standby_names = 'nobody'").expect("a setting");
    server.psql("select pg_reload_conf()").expect("a reload");
    let standby = server.url().to_owned();
    let is_set = move || {
        let output = std::process::Command::new("psql")
            .args(["-Atqc", "show synchronous_standby_names", &standby])
            .output();
        output.is_ok_and(|output| output.stdout.starts_with(b"nobody"))
    };
    until("the setting to arrive", is_set).await;

    let commit = tokio::spawn(async move { send(&mut sink, 1, one(1)).await.map(|_| sink) });
    let mut ended: Vec<String> = Vec::new();
    for _ in 0..3 {
        // The first one is the commit, the others are claims of new connections.
        let (watched, known) = (Arc::clone(&server), ended.clone());
        let found = Arc::new(std::sync::Mutex::new(String::new()));
        let finding = Arc::clone(&found);
        until("a backend that waits for the standby", move || {
            let waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'levada/job/0'";
            let pid = watched.psql(waiting).expect("a query").trim().to_owned();
            let is_new = !pid.is_empty() && !known.contains(&pid);
            *finding.lock().expect("one user") = pid;
            is_new
        })
        .await;
        let pid = found.lock().expect("one user").clone();
        server.psql(&format!("select pg_terminate_backend({pid}, 5000)")).expect("ending it");
        ended.push(pid);
    }
    server.psql("alter system reset synchronous_standby_names").expect("a setting");
    server.psql("select pg_reload_conf()").expect("a reload");
    let mut sink = commit.await.expect("the task").expect("commit");
    assert_eq!(sink.stats().resolved, 1);
    send(&mut sink, 2, one(2)).await.expect("still the owner");
    let rows = server.psql("select * from log order by 1").expect("rows");
    assert_eq!(rows.lines().collect::<Vec<_>>(), all(3));
}
