//! What happens at every step of a claim and a commit. One fail point registry serves the process, so these tests take
//! turns.

#[path = "../sink/scene.rs"]
#[allow(dead_code, reason = "shared with the tests without fail points, which use all of it")]
mod scene;
mod turn;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::{AtomicSink, Keyed, Position};
use levada_postgres::sink::FAIL_POINTS;
use levada_postgres::{PostgresSink, WriteMode};
use levada_testcontainers::{Action, Cut, Direction, Postgres, Trigger};

use scene::{Scene, assignment, config, keyless, number, opened, ready, send, split};
use turn::{Turn, hold_at, once};

const LOG: &str = "create table log (a int)";
const COMMIT_STEPS: &[&str] = &[
    "pg::commit::before_begin",
    "pg::commit::after_positions",
    "pg::commit::after_data",
    "pg::commit::before_commit",
    "pg::commit::after_commit",
];

fn one(n: u64) -> Vec<Keyed> {
    vec![keyless(&[("a", number(&n.to_string()))])]
}

/// Every name that is published is passed by a claim, a commit or a reconnect.
#[tokio::test(flavor = "multi_thread")]
async fn every_fail_point_is_passed() {
    let _turn = Turn::wait();
    let scene = Scene::new(LOG);
    let passed = Arc::new(Mutex::new(Vec::new()));
    for point in FAIL_POINTS {
        let passed = Arc::clone(&passed);
        once(point, move || passed.lock().expect("the list").push(*point));
    }
    let mut sink = ready(scene.insert("log")).await;
    scene.end_backends("levada/job/0");
    send(&mut sink, 0, one(0)).await.expect("commit");
    let mut passed = passed.lock().expect("the list").clone();
    let mut expected = FAIL_POINTS.to_vec();
    passed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(passed, expected);
}

/// [PGS-02] [PGS-03] the connection ended at each step, without a key: written once.
#[tokio::test(flavor = "multi_thread")]
async fn connection_lost_at_any_step_neither_doubles_nor_loses() {
    let _turn = Turn::wait();
    for step in COMMIT_STEPS {
        let scene = Scene::new(LOG);
        let mut sink = ready(scene.insert("log")).await;
        send(&mut sink, 0, one(0)).await.expect("commit");
        let watching = scene.watching();
        once(step, move || {
            let killed = watching(
                "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name = 'levada/job/0' and datname = current_database()",
            );
            assert_eq!(killed, "1");
        });
        send(&mut sink, 1, one(1)).await.expect(step);
        send(&mut sink, 2, one(2)).await.expect(step);
        assert_eq!(scene.rows("select * from log order by 1"), ["0", "1", "2"], "{step}");
        assert_eq!(sink.stats().reconnects, 1, "{step}");
        assert_eq!(scene.row("select next from levada.positions"), "3");
        fail::remove(*step);
    }
}

/// [PGS-03] [PGS-18] the server stopped at once at each step, and started again.
#[tokio::test(flavor = "multi_thread")]
async fn server_stopped_at_any_step_neither_doubles_nor_loses() {
    let _turn = Turn::wait();
    let server = Arc::new(Postgres::start().expect("a server"));
    server.psql(LOG).expect("a table");
    let mut sink = ready(config(server.url(), "log", WriteMode::Insert)).await;
    let mut sent = 0;
    for step in COMMIT_STEPS {
        let stopping = Arc::clone(&server);
        once(step, move || {
            stopping.stop_immediate().expect("stop");
            stopping.restart().expect("restart");
        });
        for _ in 0..2 {
            send(&mut sink, sent, one(sent)).await.expect(step);
            sent += 1;
        }
        fail::remove(*step);
        let rows = server.psql("select * from log order by 1").expect("rows");
        let expected: Vec<String> = (0..sent).map(|n| n.to_string()).collect();
        assert_eq!(rows.lines().collect::<Vec<_>>(), expected, "{step}");
    }
}

/// [PGS-01] [PGS-02] taken over at each step: the earlier owner's rows are there exactly if his position is.
#[tokio::test(flavor = "multi_thread")]
async fn takeover_at_any_step_is_all_or_nothing() {
    let _turn = Turn::wait();
    for step in COMMIT_STEPS {
        let scene = Scene::new(LOG);
        let mut earlier = ready(scene.insert("log")).await;
        let mut later_config = scene.insert("log");
        later_config.owner = "tower/42".to_owned();
        let mut later = opened(later_config).await;
        let (reached, go_on) = hold_at(step);
        let commit = tokio::spawn(async move { send(&mut earlier, 0, one(0)).await });
        tokio::task::spawn_blocking(move || reached.recv().expect("the step")).await.expect("the step");
        // The holder stands still like a stopped process; what he keeps locked is taken from him.
        let positions = tokio::time::timeout(Duration::from_secs(15), later.claim(&assignment(1))).await;
        let positions = positions.expect("takeover in time").expect("claim");
        let next = positions.get(&split(0)).expect("a position").next;
        drop(go_on);
        let committed = commit.await.expect("the task");
        let is_done = *step == "pg::commit::after_commit";
        assert_eq!(committed.is_ok(), is_done, "{step}: {committed:?}");
        if let Err(error) = committed {
            assert!(error.is_fenced() && error.to_string().contains("tower/42"), "{step}: {error}");
        }
        assert_eq!(next, u64::from(is_done), "{step}");
        assert_eq!(scene.rows("select * from log").len() as u64, next, "{step}");
        send(&mut later, next, one(next)).await.expect("commit");
        let expected: Vec<String> = (0..=next).map(|n| n.to_string()).collect();
        assert_eq!(scene.rows("select * from log order by 1"), expected, "{step}");
        fail::remove(*step);
    }
}

/// [PGS-44] stopped after the position update: the takeover ends his backend within seconds, and he learns of it.
#[tokio::test(flavor = "multi_thread")]
async fn owner_stopped_after_the_position_update_is_ended() {
    let _turn = Turn::wait();
    let scene = Scene::new(LOG);
    let mut stopped = ready(scene.insert("log")).await;
    let mut later = opened(scene.insert("log")).await;
    let (reached, go_on) = hold_at("pg::commit::after_positions");
    let commit = tokio::spawn(async move { send(&mut stopped, 0, one(0)).await });
    tokio::task::spawn_blocking(move || reached.recv().expect("the step")).await.expect("the step");
    let claim = tokio::time::timeout(Duration::from_secs(8), later.claim(&assignment(1))).await;
    let positions = claim.expect("before idle_in_transaction_session_timeout").expect("claim");
    assert_eq!(positions.get(&split(0)), Some(&Position::at(0)));
    assert_eq!(later.stats().terminated, 1);
    drop(go_on);
    assert!(commit.await.expect("the task").expect_err("taken over").is_fenced());
    assert_eq!(scene.row("select count(*) from log"), "0");
}

/// [PGS-01] everything pipelined: a stale epoch leaves no row, because the server itself refuses what follows.
#[tokio::test(flavor = "multi_thread")]
async fn stale_epoch_leaves_no_row() {
    let _turn = Turn::wait();
    let (scene, mut earlier) = taken_over().await;
    let error = send(&mut earlier, 0, one(0)).await.expect_err("fenced");
    assert!(error.is_fenced(), "{error}");
    assert_eq!(scene.row("select count(*) from log"), "0");
}

/// [PGS-01] the counter-test: without the comparison the same commit doubles rows.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_comparison_a_stale_owner_doubles_rows() {
    let _turn = Turn::wait();
    let (scene, mut earlier) = taken_over().await;
    let mut later = ready(scene.insert("log")).await;
    send(&mut later, 0, one(0)).await.expect("commit");
    fail::cfg("pg::commit::without_compare_and_set", "return").expect("a fail point");
    send(&mut earlier, 0, one(0)).await.expect("nothing stops it");
    assert_eq!(scene.rows("select * from log"), ["0", "0"]);
}

async fn taken_over() -> (Scene, PostgresSink) {
    let scene = Scene::new(LOG);
    let earlier = ready(scene.insert("log")).await;
    ready(scene.insert("log")).await;
    (scene, earlier)
}

/// What a commit leaves whose answer is lost on the way: the transaction is done, and the sink never hears of it.
async fn rows_after_a_lost_answer(switched_off: &[&str]) -> Result<Vec<String>, levada_core::SinkError> {
    let _turn = Turn::wait();
    let scene = Scene::new(LOG);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut sink = ready(config(&cut.url(scene.database.url()), "log", WriteMode::Insert)).await;
    send(&mut sink, 0, one(0)).await?;
    for protection in switched_off {
        fail::cfg(*protection, "return").expect("a fail point");
    }
    let lost = cut.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
    let outcome = send(&mut sink, 1, one(1)).await;
    lost.wait(Duration::from_secs(10)).expect("the answer was on its way");
    outcome?;
    assert_eq!(sink.stats().reconnects, 1);
    Ok(scene.rows("select * from log order by 1"))
}

/// [PGS-02] [PGS-03] [TST-04] a network cut after COMMIT went out: the position tells that it was done.
#[tokio::test(flavor = "multi_thread")]
async fn commit_whose_answer_is_lost_is_written_once() {
    assert_eq!(rows_after_a_lost_answer(&[]).await.expect("commit"), ["0", "1"]);
}

/// [PGS-02] The counter-test: a blind retry is refused by the server as long as it compares positions, and doubles the row
/// when nothing does.
#[tokio::test(flavor = "multi_thread")]
async fn a_blind_retry_after_a_lost_answer_doubles_the_row() {
    let blind = "pg::commit::blind_retry";
    let refused = rows_after_a_lost_answer(&[blind]).await.expect_err("positions differ");
    assert!(!refused.is_fenced(), "{refused}");
    let rows =
        rows_after_a_lost_answer(&[blind, "pg::commit::without_compare_and_set"]).await.expect("commit");
    assert_eq!(rows, ["0", "1", "1"]);
}

/// [PGS-03] cut anywhere: after each number of bytes of a commit, in each direction, the row is written exactly once.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_cut_after_any_number_of_bytes_is_written_once() {
    let _turn = Turn::wait();
    let scene = Scene::new(LOG);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut sink = ready(config(&cut.url(scene.database.url()), "log", WriteMode::Insert)).await;
    send(&mut sink, 0, one(0)).await.expect("commit");
    let (before_up, before_down) = (cut.bytes(Direction::ToServer), cut.bytes(Direction::ToClient));
    send(&mut sink, 1, one(1)).await.expect("commit");
    let lengths = [
        (Direction::ToServer, cut.bytes(Direction::ToServer) - before_up),
        (Direction::ToClient, cut.bytes(Direction::ToClient) - before_down),
    ];
    let mut next = 2;
    let mut fired = 0;
    for (direction, length) in lengths {
        assert!(length > 20, "{length}");
        for bytes in (0..length).step_by(length.div_ceil(24) as usize) {
            let rule = cut.when(direction, Trigger::after_bytes(bytes), Action::Cut);
            send(&mut sink, next, one(next)).await.expect("commit");
            fired += u32::from(rule.has_fired());
            cut.heal();
            next += 1;
        }
    }
    assert!(fired > 30, "only {fired} cuts");
    let expected: Vec<String> = (0..next).map(|n| n.to_string()).collect();
    assert_eq!(scene.rows("select * from log order by 1"), expected);
}
