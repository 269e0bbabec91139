//! Who holds a split, and how it is taken over.

use std::time::Duration;

use levada_core::{Assignment, AtomicSink, ErrorClass, Position, Sink, SinkContext, SplitStart, StreamId};
use levada_postgres::{PostgresSink, PostgresSinkConfig};

use crate::scene::{
    Scene, assignment, assignment_of, chain, connect, keyless, number, opened, ready, send, split, until,
};

const LOG: &str = "create table log (a int)";

fn starting_at(splits: &[u32], start: u64) -> Assignment {
    let mut assignment = assignment_of(splits.iter().copied(), 3);
    for split in &mut assignment.streams[0].splits {
        *split = SplitStart { index: split.index, start: Position::at(start), earliest: Position::at(5) };
    }
    assignment
}

/// [PGS-01] [SRC-13] the sink's part: one claim stores where every split of the stream starts.
#[tokio::test(flavor = "multi_thread")]
async fn first_claim_stores_the_start_of_all_splits() {
    let scene = Scene::new(LOG);
    let mut sink = opened(scene.insert("log")).await;
    let positions = sink.claim(&starting_at(&[1], 100)).await.expect("claim");
    assert_eq!(positions.iter().collect::<Vec<_>>(), [(&split(1), &Position::at(100))]);
    let rows = "select split, next, epoch, stream_id, owner <> '', owner_pid is not null from levada.positions order by 1";
    assert_eq!(scene.rows(rows), ["0|100|0|cluster/1|f|f", "1|100|1|cluster/1|t|t", "2|100|0|cluster/1|f|f"]);
    let mut later = opened(scene.insert("log")).await;
    let positions = later.claim(&starting_at(&[2], 900)).await.expect("claim");
    assert_eq!(positions.get(&split(2)), Some(&Position::at(100)), "what was stored first counts");
}

/// [SRC-13] the sink's part.
#[tokio::test(flavor = "multi_thread")]
async fn split_that_appears_later_starts_at_its_beginning() {
    let scene = Scene::new(LOG);
    let mut sink = opened(scene.insert("log")).await;
    let mut few = starting_at(&[0], 100);
    few.streams[0].splits.truncate(2);
    sink.claim(&few).await.expect("claim");
    let positions = sink.claim(&starting_at(&[2], 100)).await.expect("claim");
    assert_eq!(positions.get(&split(2)), Some(&Position::at(5)));
}

/// [TPL-22] two processes of two subtasks that start in the same moment: whatever the order of their four claims, one
/// process has everything in the end, and the other is fenced. By the order of claims alone, each could have half.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_that_start_together_one_gets_every_split() {
    // Process and split of each claim. The other process claims first in both.
    for order in [[(0, 0), (1, 0), (1, 1), (0, 1)], [(0, 0), (1, 1), (0, 1), (1, 0)]] {
        let scene = Scene::new(LOG);
        let processes = ["first/1", "second/2"].map(|owner| {
            let mut config = scene.insert("log");
            config.owner = owner.to_owned();
            config
        });
        let mut held = Vec::new();
        let mut refused = Vec::new();
        for (process, index) in order {
            let config: &PostgresSinkConfig = &processes[process];
            let mut sink = opened(config.clone()).await;
            match sink.claim(&assignment_of([index], 2)).await {
                Ok(_) => held.push((process, index, sink)),
                Err(error) => refused.push((process, error)),
            }
        }
        let [(0, error)] = &refused[..] else {
            panic!("one claim of the first process is refused: {refused:?}")
        };
        assert!(error.is_fenced() && error.to_string().contains("second/2"), "{error}");
        for (process, index, mut sink) in held {
            let moved = [(split(index), Position::at(1))].into_iter().collect();
            let committed = sink.commit(&moved).await;
            assert_eq!(committed.is_ok(), process == 1, "process {process}, split {index}: {committed:?}");
        }
    }
}

/// [SRC-13] the sink's part: of two first claims at once, one decides for all splits.
#[tokio::test(flavor = "multi_thread")]
async fn racing_first_claims_agree() {
    let scene = Scene::new(LOG);
    for round in 0..10 {
        let context = || SinkContext { job: format!("race {round}"), subtask: 0, parallelism: 2 };
        let (mut one, mut other) =
            (PostgresSink::new(scene.insert("log")), PostgresSink::new(scene.insert("log")));
        one.open(context()).await.expect("open");
        other.open(context()).await.expect("open");
        let (for_one, for_other) = (starting_at(&[0], 100), starting_at(&[1, 2], 200));
        let (first, second) = futures_util::future::join(one.claim(&for_one), other.claim(&for_other)).await;
        let mut all = first.expect("claim");
        all.merge(second.expect("claim"));
        let starts: Vec<u64> = all.iter().map(|(_, position)| position.next).collect();
        assert!(starts == [100; 3] || starts == [200; 3], "{starts:?}");
    }
}

/// [PGS-01] a stream that was made anew is not the one that the positions belong to.
#[tokio::test(flavor = "multi_thread")]
async fn other_stream_of_the_same_name_is_refused() {
    let scene = Scene::new(LOG);
    ready(scene.insert("log")).await;
    let mut sink = opened(scene.insert("log")).await;
    let mut other = assignment(1);
    other.streams[0].id = StreamId("cluster/2".into());
    let error = sink.claim(&other).await.expect_err("another stream");
    assert_eq!(error.class, ErrorClass::Fatal);
    for part in ["cluster/1", "cluster/2", "orders", "job", "levada.positions"] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    assert_eq!(scene.row("select epoch from levada.positions"), "1", "nothing was taken");
}

/// [PGS-02] [TPL-17] [TPL-22] the earlier owner writes nothing more and learns by whom he was replaced.
#[tokio::test(flavor = "multi_thread")]
async fn takeover_fences_the_earlier_owner_and_names_the_new_one() {
    let scene = Scene::new(LOG);
    let mut earlier = ready(scene.insert("log")).await;
    send(&mut earlier, 0, vec![keyless(&[("a", number("1"))])]).await.expect("commit");
    let mut config = scene.insert("log");
    config.owner = "tower/42".to_owned();
    let mut later = opened(config).await;
    let positions = later.claim(&assignment(1)).await.expect("claim");
    assert_eq!(positions.get(&split(0)), Some(&Position::at(1)));

    let error = send(&mut earlier, 1, vec![keyless(&[("a", number("2"))])]).await.expect_err("fenced");
    assert!(error.is_fenced(), "{error}");
    let (fenced, owner) = *error.fenced_by.expect("the new owner");
    assert_eq!((fenced, owner.name.as_str()), (split(0), "tower/42"));
    assert_eq!(owner.since, scene.row("select updated_at::text from levada.positions"));
    assert_eq!(scene.rows("select * from log"), ["1"], "no row of the fenced commit");
    let error = earlier.claim(&assignment(1)).await.expect_err("still fenced");
    assert!(error.is_fenced(), "{error}");
    send(&mut later, 1, vec![keyless(&[("a", number("3"))])]).await.expect("commit");
    assert_eq!(scene.rows("select * from log"), ["1", "3"]);
}

/// [PGS-02] a split that was given up is claimed as anybody else's.
#[tokio::test(flavor = "multi_thread")]
async fn released_split_can_be_taken_back() {
    let scene = Scene::new(LOG);
    let mut one = ready(scene.insert("log")).await;
    one.release(&[split(0)]);
    let mut other = ready(scene.insert("log")).await;
    one.claim(&assignment(1)).await.expect("claim");
    let error = send(&mut other, 0, vec![keyless(&[("a", number("1"))])]).await.expect_err("fenced");
    assert!(error.is_fenced(), "{error}");
}

/// [PGS-44] the open transaction of a stopped owner is ended by the claim that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_owner_does_not_block_a_takeover() {
    let scene = Scene::new(LOG);
    ready(scene.insert("log")).await;
    let stopped = connect(scene.database.url(), "levada/job/7").await;
    stopped
        .batch_execute("update levada.positions set owner_pid = pg_backend_pid()")
        .await
        .expect("an owner");
    stopped.batch_execute("begin; update levada.positions set next = 99").await.expect("in mid commit");
    let mut sink = opened(scene.insert("log")).await;
    let positions = tokio::time::timeout(Duration::from_secs(9), sink.claim(&assignment(1))).await;
    let positions = positions.expect("before idle_in_transaction_session_timeout could help").expect("claim");
    assert_eq!(positions.get(&split(0)), Some(&Position::at(0)), "nothing of its transaction remains");
    assert_eq!(sink.stats().terminated, 1);
    assert!(stopped.batch_execute("commit").await.is_err(), "its connection is gone");
    send(&mut sink, 0, vec![keyless(&[("a", number("1"))])]).await.expect("commit");
}

/// [PGS-44] [PGS-38] anybody else who blocks is named and left alone.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_blocker_is_reported_and_not_ended() {
    let scene = Scene::new(LOG);
    ready(scene.insert("log")).await;
    let foreign = connect(scene.database.url(), "nightly dump").await;
    foreign.batch_execute("begin; select 'hunter2' from levada.positions for update").await.expect("a lock");
    let itself = foreign.query_one("select pg_backend_pid(), current_user::text", &[]).await.expect("itself");
    let (pid, user): (i32, String) = (itself.get(0), itself.get(1));
    let mut config = scene.insert("log");
    config.claim_timeout = Duration::from_millis(1500);
    config.claim_patience = Duration::from_millis(300);
    config.max_retries = 0;
    let mut sink = opened(config).await;
    let error = sink.claim(&assignment(1)).await.expect_err("blocked");
    for part in [&format!("pid {pid}"), "\"nightly dump\"", &format!("user {user:?}"), "in transaction for"] {
        assert!(chain(&error).contains(part), "{part} in {}", chain(&error));
    }
    assert!(!chain(&error).contains("hunter2"), "its query is not shown");
    foreign.batch_execute("commit").await.expect("still connected");
    sink.claim(&assignment(1)).await.expect("claim");
}

/// [PGS-44] an application that merely looks like the recorded owner's backend is not ended.
#[tokio::test(flavor = "multi_thread")]
async fn other_backend_of_ours_is_waited_for() {
    let scene = Scene::new(LOG);
    ready(scene.insert("log")).await;
    let other = connect(scene.database.url(), "levada/job/3").await;
    other.batch_execute("begin; select from levada.positions for update").await.expect("a lock");
    let mut config = scene.insert("log");
    config.claim_patience = Duration::from_millis(100);
    let mut sink = opened(config).await;
    let claim =
        tokio::spawn(async move { sink.claim(&assignment(1)).await.map(|_| sink.stats().terminated) });
    let watching = scene.watching();
    until("the claim to be waiting and to be looked at", move || {
        watching("select count(*) from pg_stat_activity where application_name = 'levada/job/0' and datname = current_database()") == "2"
    })
    .await;
    other.batch_execute("commit").await.expect("still connected");
    assert_eq!(claim.await.expect("the task").expect("claim"), 0);
}

/// [PGS-01] the table is made once, also by many at once, and the statements can be had to run by hand.
#[tokio::test(flavor = "multi_thread")]
async fn positions_table_is_made_on_demand() {
    let scene = Scene::new(LOG);
    let sinks = (0..6).map(|_| opened(scene.insert("log")));
    futures_util::future::join_all(sinks).await;
    let by_hand = Scene::new(LOG);
    by_hand.database.psql(&levada_postgres::sink::ddl()).expect("the DDL");
    let columns = "select column_name, data_type from information_schema.columns where table_schema = 'levada' order by 1, 2";
    assert_eq!(scene.rows(columns), by_hand.rows(columns));
    ready(by_hand.insert("log")).await;
}

/// [PGS-01] without the privilege to create, the error brings the statements.
#[tokio::test(flavor = "multi_thread")]
async fn missing_privilege_to_create_shows_the_ddl() {
    let scene = Scene::new(LOG);
    let role = levada_testcontainers::unique_name("reader").replace('-', "_");
    scene
        .database
        .psql(&format!("create role {role} login password 'hunter2'; grant all on log to {role}"))
        .expect("a role");
    let mut config = scene.insert("log");
    config.connection.user(&role).password("hunter2");
    let mut sink = PostgresSink::new(config.clone());
    let error = sink.open(crate::scene::context()).await.expect_err("no privilege");
    assert_eq!(error.class, ErrorClass::Fatal);
    assert!(error.to_string().contains(&levada_postgres::sink::ddl()), "{error}");
    assert!(!format!("{} {error:?} {sink:?}", chain(&error)).contains("hunter2"));
    scene
        .database
        .psql(&format!(
            "{}; grant usage on schema levada to {role}; grant all on all tables in schema levada to {role}",
            levada_postgres::sink::ddl()
        ))
        .expect("the DDL");
    let mut sink = ready(config).await;
    send(&mut sink, 0, vec![keyless(&[("a", number("1"))])]).await.expect("commit");
    drop(sink);
    scene.database.psql(&format!("drop owned by {role}; drop role {role}")).expect("cleaning up");
}

/// [PGS-01] a newer table is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn other_version_of_the_positions_table_is_refused() {
    let scene = Scene::new(LOG);
    opened(scene.insert("log")).await;
    scene.database.psql("update levada.meta set version = 2").expect("a newer version");
    let mut sink = PostgresSink::new(scene.insert("log"));
    let error = sink.open(crate::scene::context()).await.expect_err("a newer version");
    assert!(error.class == ErrorClass::Fatal && error.to_string().contains("version 2"), "{error}");
}
