//! The life of segments whose marker is in the data's transaction.

use std::time::Duration;

use levada_engine::driver::SinkDriver;
use levada_postgres::WriteMode;
use levada_testcontainers::{Action, Cut, Direction, Postgres, Trigger};

use crate::driven::*;
use crate::scene::{Scene, config, connect};

/// [TPL-06] [TPL-08] on Postgres: all once, each with its marker.
#[tokio::test(flavor = "multi_thread")]
async fn three_segments_are_written_once() {
    let scene = Scene::new(LOG);
    let mut driver = first(scene.insert("log")).await;
    for n in 1..=3 {
        segment(&mut driver, id(1, n), [2 * n, 2 * n + 1]).await;
        driver.complete(id(1, n)).await.expect("complete");
    }
    assert_eq!(scene.rows(ROWS), ["2", "3", "4", "5", "6", "7"]);
    assert_eq!(driver.tally().published, 6);
    driver.close().await;
}

/// [TPL-08]
#[tokio::test(flavor = "multi_thread")]
async fn segment_whose_notification_was_lost_is_written_with_the_next() {
    let scene = Scene::new(LOG);
    let mut driver = first(scene.insert("log")).await;
    segment(&mut driver, id(1, 1), [1]).await;
    segment(&mut driver, id(1, 2), [2]).await;
    driver.complete(id(1, 2)).await.expect("complete");
    driver.complete(id(1, 2)).await.expect("complete");
    assert_eq!(scene.rows(ROWS), ["1", "2"]);
    assert_eq!(scene.rows(MARKERS), ["job|log|0|1-1", "job|log|0|1-2"]);
}

/// [TPL-07] a crash between the send and the next checkpoint: the restored segment is known by its marker. What came behind
/// the checkpoint is dropped ([TPL-08]).
#[tokio::test(flavor = "multi_thread")]
async fn segment_that_was_sent_before_a_crash_is_not_sent_again() {
    let scene = Scene::new(LOG);
    let mut driver = first(scene.insert("log")).await;
    let state = segment(&mut driver, id(1, 1), [1, 2]).await;
    driver.complete(id(1, 1)).await.expect("complete");
    write(&mut driver, [3]).await;
    drop(driver);

    let mut driver = again(scene.insert("log"), 2, &state).await;
    assert_eq!(driver.tally().known, 2);
    segment(&mut driver, id(2, 1), [4]).await;
    driver.complete(id(2, 1)).await.expect("complete");
    assert_eq!(scene.rows(ROWS), ["1", "2", "4"]);
}

/// [TPL-07] [TPL-08] two subtasks' pending segments come to one, which sends them under their own markers.
#[tokio::test(flavor = "multi_thread")]
async fn pending_segments_of_two_subtasks_are_sent_by_one() {
    let scene = Scene::new(LOG);
    let mut states = Vec::new();
    for subtask in 0..2 {
        let mut driver = driver(scene.insert("log"));
        driver.open(context(subtask, 2, 1), None).await.expect("open");
        states.push(segment(&mut driver, id(1, 1), [u64::from(subtask)]).await);
        if subtask == 1 {
            // Its notification came, the other's did not.
            driver.complete(id(1, 1)).await.expect("complete");
        }
    }
    let mut driver = again(scene.insert("log"), 2, &deal(&states, 1)[0]).await;
    assert_eq!((driver.tally().restored, driver.tally().known), (2, 1));
    segment(&mut driver, id(2, 1), [2]).await;
    driver.complete(id(2, 1)).await.expect("complete");
    assert_eq!(scene.rows(ROWS), ["0", "1", "2"]);
    assert_eq!(scene.rows(MARKERS), ["job|log|0|1-1", "job|log|1|1-1", "job|log|0|2-1"]);
}

/// [TPL-07] [TPL-08] one subtask's pending segments are spread over two.
#[tokio::test(flavor = "multi_thread")]
async fn pending_segments_of_one_subtask_are_sent_by_two() {
    let scene = Scene::new(LOG);
    let mut driver = first(scene.insert("log")).await;
    segment(&mut driver, id(1, 1), [1]).await;
    let state = segment(&mut driver, id(1, 2), [2]).await;
    drop(driver);
    for (subtask, state) in (0..).zip(deal(&[state], 2)) {
        let mut driver = crate::driven::driver(scene.insert("log"));
        driver.open(context(subtask, 2, 2), restored(id(1, 2), &state)).await.expect("open");
        assert_eq!(driver.tally().restored, 1);
        segment(&mut driver, id(2, 1), [10 + u64::from(subtask)]).await;
        driver.complete(id(2, 1)).await.expect("complete");
    }
    assert_eq!(scene.rows(ROWS), ["1", "2", "10", "11"]);
    let markers = ["job|log|0|1-1", "job|log|0|1-2", "job|log|0|2-1", "job|log|1|2-1"];
    assert_eq!(scene.rows(MARKERS), markers);
}

/// [TPL-06] [TPL-07] the network is cut when COMMIT has gone out: the marker tells that it was done.
#[tokio::test(flavor = "multi_thread")]
async fn segment_whose_answer_is_lost_is_written_once() {
    let scene = Scene::new(LOG);
    let cut = Cut::to(scene.database.url()).expect("a proxy");
    let mut driver = first(config(&cut.url(scene.database.url()), "log", WriteMode::Insert)).await;
    segment(&mut driver, id(1, 1), [1]).await;
    let lost = cut.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
    driver.complete(id(1, 1)).await.expect("it waits");
    lost.wait(Duration::from_secs(10)).expect("the answer was on its way");
    assert_eq!(driver.tally().held_back, 1);
    segment(&mut driver, id(1, 2), [2]).await;
    driver.complete(id(1, 2)).await.expect("complete");
    assert_eq!((driver.tally().known, driver.tally().published), (1, 1));
    assert_eq!(scene.rows(ROWS), ["1", "2"]);
}

/// [TPL-06] the server is stopped at once: the segments wait, and come in order when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn segments_wait_for_a_server_that_is_restarted() {
    let server = Postgres::start().expect("a server");
    server.psql(LOG).expect("a table");
    let mut driver = first(config(server.url(), "log", WriteMode::Insert)).await;
    segment(&mut driver, id(1, 1), [1]).await;
    driver.complete(id(1, 1)).await.expect("complete");
    server.stop_immediate().expect("stop");
    segment(&mut driver, id(1, 2), [2]).await;
    driver.complete(id(1, 2)).await.expect("it waits");
    segment(&mut driver, id(1, 3), [3]).await;
    driver.complete(id(1, 3)).await.expect("it waits");
    assert_eq!(driver.tally().held_back, 2);
    server.restart().expect("restart");
    driver.complete(id(1, 3)).await.expect("complete");
    assert_eq!(driver.tally().published, 3);
    assert_eq!(server.psql("select a from log").expect("rows"), "1\n2\n3");
}

/// [TPL-06] whoever locks the table is waited for at the next notification, and no later segment goes first.
#[tokio::test(flavor = "multi_thread")]
async fn segment_that_runs_into_a_lock_keeps_its_place() {
    let scene = Scene::new(LOG);
    let mut impatient = scene.insert("log");
    impatient.lock_timeout = Duration::from_millis(50);
    impatient.max_retries = 0;
    let mut driver = first(impatient).await;
    let other = connect(scene.database.url(), "other").await;
    other.batch_execute("begin; lock table log").await.expect("a lock");
    segment(&mut driver, id(1, 1), [1]).await;
    driver.complete(id(1, 1)).await.expect("it waits");
    segment(&mut driver, id(1, 2), [2]).await;
    assert_eq!(driver.tally().held_back, 1);
    other.batch_execute("rollback").await.expect("the end of the lock");
    driver.complete(id(1, 2)).await.expect("complete");
    assert_eq!(scene.rows("select a from log"), ["1", "2"]);
}

/// [TPL-07] a process that was stopped for so long that its markers are forgotten: fenced off when it wakes up.
#[tokio::test(flavor = "multi_thread")]
async fn process_that_wakes_up_after_its_markers_were_forgotten_is_fenced() {
    let scene = Scene::new(LOG);
    let mut stopped = first(scene.insert("log")).await;
    let state = segment(&mut stopped, id(1, 1), [1]).await;

    let mut later = again(scene.insert("log"), 2, &state).await;
    for n in 1..=4 {
        barrier(&mut later, id(2, n)).await;
        later.complete(id(2, n)).await.expect("complete");
    }
    assert!(scene.rows(MARKERS).is_empty(), "{:?}", scene.rows(MARKERS));
    let error = stopped.complete(id(1, 1)).await.expect_err("taken over");
    assert!(error.is_fenced(), "{error}");
    assert_eq!(scene.rows(ROWS), ["1"]);

    // Nor can it open again.
    let error = driver(scene.insert("log")).open(context(0, 1, 1), None).await.expect_err("taken over");
    assert!(error.is_fenced() && error_chain(&error).contains("later opening"), "{}", error_chain(&error));
}

/// [TPL-07] markers that no checkpoint is asked about any more are removed, the others stay.
#[tokio::test(flavor = "multi_thread")]
async fn markers_of_old_segments_are_forgotten() {
    let scene = Scene::new(LOG);
    let mut driver = first(scene.insert("log")).await;
    for n in 1..=10 {
        segment(&mut driver, id(1, n), [n]).await;
        driver.complete(id(1, n)).await.expect("complete");
    }
    let left = scene.rows(MARKERS);
    assert!(left.len() <= 3 && left.contains(&"job|log|0|1-10".to_owned()), "{left:?}");
    assert_eq!(scene.rows(ROWS).len(), 10);
}

/// [TPL-07] A job that starts anew with an empty store of checkpoints uses its ids again: refused, and not taken as sent.
#[tokio::test(flavor = "multi_thread")]
async fn job_that_starts_anew_with_an_empty_store_loses_nothing_silently() {
    let scene = Scene::new(LOG);
    let mut driver = first(scene.insert("log")).await;
    segment(&mut driver, id(1, 1), [1]).await;
    driver.complete(id(1, 1)).await.expect("complete");

    let mut anew = first(scene.insert("log")).await;
    segment(&mut anew, id(1, 1), [2]).await;
    let error = anew.complete(id(1, 1)).await.expect_err("its marker is there");
    assert!(error.to_string().contains("was never sent, but its marker is there"), "{error}");

    scene.database.psql("delete from levada.markers where job = 'job'").expect("as the error says");
    let mut anew = first(scene.insert("log")).await;
    segment(&mut anew, id(1, 1), [2]).await;
    anew.complete(id(1, 1)).await.expect("complete");
    assert_eq!(scene.rows(ROWS), ["1", "2"]);
}
