//! Which rows a sequence of changes leaves.

use levada_core::{AtomicSink, Committed, ErrorClass, Value};
use levada_postgres::Tombstone;

use crate::scene::{Scene, delete, keyless, number, ready, send, text, upsert};

const TABLE: &str = "create table t (id int primary key, a text, b text default 'fresh')";

fn id(id: i64) -> [(&'static str, Value); 1] {
    [("id", Value::Int(id))]
}

/// [PGS-01] rows and positions in one transaction.
#[tokio::test(flavor = "multi_thread")]
async fn rows_and_position_are_committed_together() {
    let scene = Scene::new(TABLE);
    let mut sink = ready(scene.upsert("t").key(["id"])).await;
    let committed =
        send(&mut sink, 0, vec![upsert(&id(1), &[("a", text("x"))]), upsert(&id(2), &[("a", text("y"))])])
            .await;
    assert_eq!(committed.expect("commit"), Committed { written: 2, ..Committed::default() });
    assert_eq!(scene.rows("select * from t order by id"), ["1|x|fresh", "2|y|fresh"]);
    assert_eq!(scene.row("select xmin from t union select xmin from levada.positions").lines().count(), 1);
    assert_eq!(
        scene.row("select pipeline, stream, split, next, epoch from levada.positions"),
        "job|orders|0|2|1"
    );
    send(&mut sink, 2, vec![upsert(&id(1), &[("a", Value::Null)])]).await.expect("commit");
    assert_eq!(scene.rows("select * from t order by id"), ["1||fresh", "2|y|fresh"]);
}

/// [PGS-10] plain insert mode collapses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn insert_mode_keeps_every_row() {
    let scene = Scene::new("create table log (a int, b text)");
    let mut sink = ready(scene.insert("log")).await;
    let same = keyless(&[("a", number("1")), ("b", text("x"))]);
    let committed = send(&mut sink, 0, vec![same.clone(), same.clone(), same]).await.expect("commit");
    assert_eq!(committed.written, 3);
    assert_eq!(scene.rows("select * from log"), ["1|x", "1|x", "1|x"]);
}

/// [PGS-10] a repeated key is a bad row.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_key_in_insert_mode_is_a_bad_record() {
    let scene = Scene::new(TABLE);
    let mut sink = ready(scene.insert("t").key(["id"])).await;
    let changes = [1, 2, 3, 2, 4].map(|key| upsert(&id(key), &[("a", text("x"))])).to_vec();
    let error = send(&mut sink, 40, changes).await.expect_err("a repeated key");
    assert_eq!(error.class, ErrorClass::BadRecord);
    assert_eq!(error.coordinates.as_ref().expect("coordinates").to_string(), "orders-0@43");
    assert!(error.to_string().contains("23505") && error.to_string().contains("t_pkey"), "{error}");
    assert_eq!(scene.row("select count(*) from t"), "0");
    sink.discard();
    assert_eq!(sink.pending().rows, 0);
}

/// [PGS-10] [PGS-11] D, I-D, D-I, I-D-I leave what one-by-one application leaves.
#[tokio::test(flavor = "multi_thread")]
async fn last_change_of_a_key_wins_across_deletes() {
    let scene = Scene::new(&format!(
        "{TABLE}; insert into t values (2, 'old', 'old'), (3, 'old', 'old'), (5, 'old', 'old')"
    ));
    let mut sink = ready(scene.upsert("t").key(["id"]).tombstones(Tombstone::Delete)).await;
    let a = |key, value| upsert(&id(key), &[("a", text(value))]);
    let changes = vec![
        a(1, "gone"),
        delete(&id(1)),
        delete(&id(2)),
        a(2, "new"),
        a(3, "between"),
        delete(&id(3)),
        a(3, "last"),
        delete(&id(4)),
        a(5, "kept b"),
        a(5, "kept b, too"),
        delete(&id(4)),
    ];
    let committed = send(&mut sink, 0, changes).await.expect("commit");
    assert_eq!(
        scene.rows("select * from t order by id"),
        ["2|new|fresh", "3|last|fresh", "5|kept b, too|old"],
        "a deleted row's other fields are defaults again"
    );
    assert_eq!(committed, Committed { written: 3, deleted: 4, coalesced: 4, ..Committed::default() });
    assert_eq!(committed.total(), 11);
}

/// [PGS-11] ignored by default, and counted.
#[tokio::test(flavor = "multi_thread")]
async fn tombstone_is_ignored_and_counted_by_default() {
    let scene = Scene::new(&format!("{TABLE}; insert into t values (1, 'a', 'b')"));
    let mut sink = ready(scene.upsert("t").key(["id"])).await;
    let committed = send(&mut sink, 0, vec![delete(&id(1)), delete(&id(2))]).await.expect("commit");
    assert_eq!(committed, Committed { ignored: 2, ..Committed::default() });
    assert_eq!(scene.row("select * from t"), "1|a|b");
    assert_eq!(scene.row("select next from levada.positions"), "2");
}

/// [PGS-15] the default: what a change does not have stays, also where a new row would have to have it.
#[tokio::test(flavor = "multi_thread")]
async fn absent_field_is_left_alone_even_if_it_must_not_be_null() {
    let scene = Scene::new(
        "create table t (id varchar(5), k int, must text not null, a text, n int not null default 3, primary key (id, k));
         insert into t values ('x', 1, 'kept', 'old', 9), ('y', 1, 'kept', 'old', 9)",
    );
    let mut sink = ready(scene.upsert("t").key(["k", "id"]).tombstones(Tombstone::Delete)).await;
    let key = |id: &str| [("id", text(id)), ("k", Value::Int(1))];
    let whole = upsert(&key("z"), &[("must", text("whole"))]);
    let changes = vec![upsert(&key("x"), &[("a", text("new"))]), upsert(&key("y"), &[]), whole];
    send(&mut sink, 0, changes).await.expect("commit");
    send(&mut sink, 3, vec![upsert(&key("z"), &[("a", text("later"))])]).await.expect("commit");
    assert_eq!(
        scene.rows("select * from t order by id"),
        ["x|1|kept|new|9", "y|1|kept|old|9", "z|1|whole|later|3"]
    );
    for (changes, at) in [
        (vec![upsert(&key("x"), &[("a", text("1"))]), upsert(&key("w"), &[("a", text("1"))])], "orders-0@5"),
        (vec![delete(&key("x")), upsert(&key("x"), &[("a", text("1"))])], "orders-0@5"),
        (vec![upsert(&key("w"), &[])], "orders-0@4"),
    ] {
        let error = send(&mut sink, 4, changes).await.expect_err("a new row without the column");
        assert_eq!(error.coordinates.as_ref().expect("coordinates").to_string(), at);
        assert!(error.to_string().contains("23502") && error.to_string().contains("must"), "{error}");
        sink.discard();
    }
    assert_eq!(scene.row("select count(*) from t"), "3");
}
