//! What happens at every step of a send. One fail point registry serves the process, so these tests take turns.

#[path = "../write_ahead/driven.rs"]
#[allow(dead_code, reason = "shared with the tests without fail points, which use all of it")]
mod driven;
#[path = "../sink/scene.rs"]
#[allow(dead_code, reason = "shared with the tests of the atomic sink, which use all of it")]
mod scene;
#[path = "../faults/turn.rs"]
mod turn;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use levada_engine::driver::SinkDriver;
use levada_postgres::WriteMode;
use levada_postgres::write_ahead::FAIL_POINTS;
use levada_testcontainers::{Action, Cut, Direction, Trigger};

use driven::*;
use scene::{Scene, config};
use turn::{Turn, hold_at, once};

const SEND_STEPS: &[&str] = &[
    "pgwal::send::before_begin",
    "pgwal::send::after_marker",
    "pgwal::send::after_data",
    "pgwal::send::before_commit",
    "pgwal::send::after_commit",
];

async fn reached(point: mpsc::Receiver<()>) {
    tokio::task::spawn_blocking(move || point.recv().expect("the step")).await.expect("the step");
}

/// Every name that is published is passed by an opening, a send and the notifications behind it.
#[tokio::test(flavor = "multi_thread")]
async fn every_fail_point_is_passed() {
    let _turn = Turn::wait();
    let scene = Scene::new(LOG);
    let passed = Arc::new(Mutex::new(Vec::new()));
    for point in FAIL_POINTS {
        let passed = Arc::clone(&passed);
        once(point, move || passed.lock().expect("the list").push(*point));
    }
    let mut driver = first(scene.insert("log")).await;
    segment(&mut driver, id(1, 1), [1]).await;
    for n in 2..=4 {
        driver.complete(id(1, n - 1)).await.expect("complete");
        barrier(&mut driver, id(1, n)).await;
    }
    driver.complete(id(1, 4)).await.expect("complete");
    assert_eq!(*passed.lock().expect("the list"), FAIL_POINTS);
}

/// [TPL-06] [TPL-07] the connections ended at each step: the segment is there once, at the latest with the next notification.
#[tokio::test(flavor = "multi_thread")]
async fn connection_lost_at_any_step_neither_doubles_nor_loses() {
    let _turn = Turn::wait();
    for step in SEND_STEPS {
        let scene = Scene::new(LOG);
        let mut driver = first(scene.insert("log")).await;
        segment(&mut driver, id(1, 1), [1]).await;
        let watching = scene.watching();
        once(step, move || {
            let ended = watching(
                "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where application_name like 'levada/job/0%' and datname = current_database()",
            );
            assert_eq!(ended, "2");
        });
        driver.complete(id(1, 1)).await.expect(step);
        segment(&mut driver, id(1, 2), [2]).await;
        driver.complete(id(1, 2)).await.expect(step);
        assert_eq!(driver.tally().pending(), 0, "{step}");
        assert_eq!(scene.rows("select a from log"), ["1", "2"], "{step}");
        fail::remove(*step);
    }
}

/// [TPL-07] the process dies at each step, and another one takes its checkpoint over: once.
#[tokio::test(flavor = "multi_thread")]
async fn process_that_dies_at_any_step_neither_doubles_nor_loses() {
    let _turn = Turn::wait();
    for step in SEND_STEPS {
        let scene = Scene::new(LOG);
        let mut dying = first(scene.insert("log")).await;
        let state = segment(&mut dying, id(1, 1), [1]).await;
        let (point, go_on) = hold_at(step);
        let sending = tokio::spawn(async move { dying.complete(id(1, 1)).await });
        reached(point).await;
        sending.abort();
        assert!(sending.await.expect_err("dead").is_cancelled());
        drop(go_on);

        let mut next = again(scene.insert("log"), 2, &state).await;
        segment(&mut next, id(2, 1), [2]).await;
        next.complete(id(2, 1)).await.expect(step);
        let was_sent = *step == "pgwal::send::after_commit";
        assert_eq!(next.tally().known, u64::from(was_sent), "{step}");
        assert_eq!(scene.rows("select a from log"), ["1", "2"], "{step}");
        fail::remove(*step);
    }
}

/// [TPL-07] the process is stopped at each step, as by SIGSTOP, taken over, and wakes up: once. A takeover waits no longer than
/// the server lets a transaction stand still.
#[tokio::test(flavor = "multi_thread")]
async fn process_that_is_stopped_at_any_step_and_wakes_up_doubles_nothing() {
    let _turn = Turn::wait();
    for step in SEND_STEPS {
        let scene = Scene::new(LOG);
        let mut impatient = scene.insert("log");
        impatient.idle_in_transaction_session_timeout = Duration::from_millis(300);
        let mut stopped = first(impatient).await;
        let state = segment(&mut stopped, id(1, 1), [1]).await;
        let (point, go_on) = hold_at(step);
        let sending = tokio::spawn(async move {
            let sent = stopped.complete(id(1, 1)).await;
            (stopped, sent)
        });
        reached(point).await;

        let opening = again(scene.insert("log"), 2, &state);
        let mut next = tokio::time::timeout(Duration::from_secs(20), opening).await.expect("in time");
        next.complete(id(1, 1)).await.expect(step);
        assert_eq!(scene.rows(ROWS), ["1"], "{step}");
        drop(go_on);
        let (mut stopped, sent) = sending.await.expect("the task");
        let sent = match sent {
            // Its transaction was ended, so it waits; the next notification asks for the marker, and finds it.
            Ok(()) => stopped.complete(id(1, 1)).await,
            refused => refused,
        };
        if let Err(error) = sent {
            assert!(error.is_fenced(), "{step}: {}", error_chain(&error));
        }
        segment(&mut stopped, id(1, 2), [2]).await;
        let error = stopped.complete(id(1, 2)).await.expect_err("taken over");
        assert!(error.is_fenced(), "{step}: {}", error_chain(&error));
        assert_eq!(scene.rows(ROWS), ["1"], "{step}");
        fail::remove(*step);
    }
}

/// [TPL-07] two who send the same segment at the same time, with no fence between them: the marker's key lets the second one
/// wait, and then take it as sent.
#[tokio::test(flavor = "multi_thread")]
async fn second_sender_of_a_segment_waits_for_the_first() {
    let _turn = Turn::wait();
    fail::cfg("pgwal::without_fence", "return").expect("a fail point");
    let scene = Scene::new(LOG);
    let mut earlier = first(scene.insert("log")).await;
    let state = segment(&mut earlier, id(1, 1), [1]).await;
    let (point, go_on) = hold_at("pgwal::send::before_commit");
    let sending = tokio::spawn(async move { earlier.complete(id(1, 1)).await });
    reached(point).await;

    let mut later = again(scene.insert("log"), 2, &state).await;
    let watching = scene.watching();
    let second = tokio::spawn(async move {
        later.complete(id(1, 1)).await.expect("complete");
        later.tally()
    });
    scene::until("the second one waits for the first", move || {
        watching("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
            == "1"
    })
    .await;
    drop(go_on);
    sending.await.expect("the task").expect("complete");
    assert_eq!(second.await.expect("the task").published, 1);
    assert_eq!(scene.rows(ROWS), ["1"]);
}

/// What a segment leaves whose answer is lost on the way.
async fn rows_after_a_lost_answer(switched_off: &[&str]) -> (Vec<String>, Option<String>) {
    let _turn = Turn::wait();
    let scene = Scene::new(LOG);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut driver = first(config(&cut.url(scene.database.url()), "log", WriteMode::Insert)).await;
    segment(&mut driver, id(1, 1), [1]).await;
    for protection in switched_off {
        fail::cfg(*protection, "return").expect("a fail point");
    }
    let lost = cut.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
    driver.complete(id(1, 1)).await.expect("it waits");
    lost.wait(Duration::from_secs(10)).expect("the answer was on its way");
    let outcome = driver.complete(id(1, 1)).await;
    (scene.rows(ROWS), outcome.err().map(|error| error.to_string()))
}

/// [TPL-07] The counter-test: without the marker the same segment is written twice, and the driver finds the marker missing.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_marker_a_lost_answer_doubles_a_segment() {
    assert_eq!(rows_after_a_lost_answer(&[]).await, (vec!["1".to_owned()], None));
    let (rows, error) = rows_after_a_lost_answer(&["pgwal::without_marker"]).await;
    assert_eq!(rows, ["1", "1"]);
    assert!(error.expect("no marker").contains("without its marker"));
}

/// [TPL-07] The counter-test: without the fence a process whose marker was forgotten writes its segment again.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_a_forgotten_marker_doubles_a_segment() {
    let _turn = Turn::wait();
    fail::cfg("pgwal::without_fence", "return").expect("a fail point");
    let scene = Scene::new(LOG);
    let mut stopped = first(scene.insert("log")).await;
    let state = segment(&mut stopped, id(1, 1), [1]).await;
    let mut later = again(scene.insert("log"), 2, &state).await;
    for n in 1..=4 {
        barrier(&mut later, id(2, n)).await;
        later.complete(id(2, n)).await.expect("complete");
    }
    stopped.complete(id(1, 1)).await.expect("nothing stops it");
    assert_eq!(scene.rows(ROWS), ["1", "1"]);
}
