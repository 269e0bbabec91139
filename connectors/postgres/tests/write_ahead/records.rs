//! Changes in segments: modes, and records at fault.

use levada_core::batch::{Coordinates, Located};
use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{Keyed, SinkContext, SplitId, Timestamp};
use levada_engine::driver::SinkDriver;
use levada_postgres::{PostgresWriteAhead, Tombstone};

use crate::driven::*;
use crate::scene::{JOB, Scene, delete, keyless, number, text, upsert};

/// [TPL-06] [PGS-10] a segment is collapsed by key as a commit is, and a later one wins.
#[tokio::test(flavor = "multi_thread")]
async fn upserts_and_deletions_of_segments_apply_in_order() {
    let scene = Scene::new("create table t (id int primary key, name text)");
    let config = scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete);
    let mut driver = first(config).await;
    let change = |id: &str, name: &str| upsert(&[("id", number(id))], &[("name", text(name))]);
    write_changes(&mut driver, vec![change("1", "a"), change("2", "b"), change("1", "c")]).await;
    barrier(&mut driver, id(1, 1)).await;
    write_changes(&mut driver, vec![delete(&[("id", number("2"))]), change("3", "d"), change("1", "e")])
        .await;
    barrier(&mut driver, id(1, 2)).await;
    driver.complete(id(1, 2)).await.expect("complete");
    assert_eq!(scene.rows("select id, name from t order by id"), ["1|e", "3|d"]);
}

/// [TPL-06] A record that does not fit its column, or that the server refuses: the task fails and names it; nothing of the
/// segment is visible, not its marker either, and those behind it wait.
#[tokio::test(flavor = "multi_thread")]
async fn bad_record_fails_the_task_and_is_named() {
    for (bad, reason) in [("70000", "column \"a\""), ("13", "SQLSTATE 23514, constraint \"lucky\"")] {
        let scene = Scene::new("create table log (a smallint constraint lucky check (a <> 13))");
        let mut driver = first(scene.insert("log")).await;
        let row = |n: &str| keyless(&[("a", number(n))]);
        write_changes(&mut driver, vec![row("1"), row("2"), row(bad), row("4")]).await;
        barrier(&mut driver, id(1, 1)).await;
        segment(&mut driver, id(1, 2), [5]).await;
        let error = driver.complete(id(1, 2)).await.expect_err("a bad record");
        let shown = error_chain(&error);
        assert!(error.is_bad_record() && shown.contains("record job/log/1-1-0@2"), "{shown}");
        assert!(shown.contains(reason) && !shown.contains("70000"), "{shown}");
        assert!(scene.rows("select a from log").is_empty());
        assert!(scene.rows(MARKERS).is_empty());
    }
}

/// [TPL-06] A record that has kept its place is named by it.
#[tokio::test(flavor = "multi_thread")]
async fn located_record_is_named_by_its_coordinates() {
    let scene = Scene::new(LOG);
    let (mut sink, mut committer) = PostgresWriteAhead::with_committer(scene.insert("log"));
    let ctx = SinkContext { job: JOB.to_owned(), subtask: 0, parallelism: 1 };
    committer.open(&ctx).await.expect("open");
    WriteAheadSink::<Located<Keyed>>::open(&mut sink, ctx).await.expect("open");
    let located = |offset: u64, n: &str| {
        let coordinates = Coordinates { split: SplitId::new("orders", 3), offset };
        Located::new(coordinates, keyless(&[("a", number(n))]))
    };
    let marker = Marker { job: JOB.to_owned(), uid: UID.to_owned(), subtask: 0, checkpoint: id(1, 1) };
    let records = vec![located(41, "1"), located(42, "1.5")];
    let mut segment = Segment { marker, time: Timestamp(0), records };
    let error = sink.send(&segment).await.expect_err("no integer");
    assert!(error.to_string().starts_with("record orders-3@42: "), "{error}");
    segment.records.pop();
    assert!(sink.send(&segment).await.expect("sent"));
    // Without a driver that asks: the marker is there, so nothing is written.
    assert!(sink.send(&segment).await.expect("known"));
    assert_eq!(scene.rows(ROWS), ["1"]);
}
