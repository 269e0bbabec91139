//! What a sink tells of itself.

use std::time::Duration;

use levada_core::template::TwoPhaseCommitSink;
use levada_core::{CheckpointId, Clock as _, SystemClock};
use levada_kafka::sink::metrics::{Phase, TransactionMetrics};
use levada_kafka::sink::recovery::TransactionHandle;

use super::support::{Topic, context};
use super::two_phase::{Driven, TIMEOUT, name};

fn seen(driven: &Driven) -> TransactionMetrics {
    driven.metrics.snapshot(SystemClock.now())
}

/// [KSK-27]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_is_seen_from_its_begin_to_its_commit() {
    let topic = Topic::new(1).await;
    let mut driven = Driven::open(&topic, topic.config()).await;
    let mut handle = driven.write(1, &["a", "b", "c"]).await.expect("write");
    let open = seen(&driven);
    assert_eq!((open.count(Phase::Open), open.count(Phase::Prepared), open.begun), (1, 0, 1));
    let (age, left) = (open.oldest_age().expect("one"), open.least_left().expect("it has a timeout"));
    assert_eq!(age + left, TIMEOUT);
    driven.sink.pre_commit(&mut handle).await.expect("pre-commit");
    let prepared = seen(&driven);
    assert_eq!((prepared.count(Phase::Open), prepared.count(Phase::Prepared)), (0, 1));
    let standing = &prepared.undecided[0];
    assert_eq!((&standing.id, standing.records), (&handle.transactional_id, 3));
    // By the broker's account of its begin, an hour later.
    let start = handle.start.expect("prepared");
    let later = driven.metrics.snapshot(start.saturating_add(Duration::from_secs(3600)));
    assert_eq!(later.oldest_age(), Some(Duration::from_secs(3600)));
    assert_eq!(later.least_left(), Some(Duration::ZERO));
    driven.commit_visibly(&handle).await;
    let committed = seen(&driven);
    assert_eq!((committed.undecided.len(), committed.committed, committed.lost), (0, 1, 0));
    assert_eq!((committed.commit_micros.count(), committed.records.sum()), (1, 3.0));
}

/// [KSK-27] what was aborted, and what a process that ends leaves to the next start; there it is found, and counted as fenced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_found_and_fenced_transactions_are_counted() {
    let topic = Topic::new(1).await;
    let mut first = Driven::open(&topic, topic.config()).await;
    let aborted = first.write(1, &["never"]).await.expect("write");
    first.sink.abort(&aborted).await.expect("abort");
    let kept = first.prepare(2, &["kept"]).await.expect("prepare");
    first.write(3, &["left over"]).await.expect("write");
    assert_eq!((seen(&first).aborted, seen(&first).undecided.len()), (1, 2));
    // Ids are listed once their records are there.
    first.coordinator.until(&kept.transactional_id, "Ongoing").await;
    first.sink.close().await;
    assert_eq!(seen(&first).undecided, []);

    let mut second = Driven::new(&topic, topic.config());
    second.sink.open(context()).await.expect("open");
    second.sink.inspect(std::slice::from_ref(&kept)).await.expect("inspect");
    let found = seen(&second);
    assert_eq!((found.count(Phase::Prepared), found.begun, found.committed), (1, 0, 0));
    let next_attempt = CheckpointId { attempt: 8, sequence: 1 };
    second.sink.fence(next_attempt, std::slice::from_ref(&kept)).await.expect("fence");
    assert!(seen(&second).fenced >= 1, "the one that was written to, and those that were ready");
    second.commit_visibly(&kept).await;
    assert_eq!((seen(&second).committed, seen(&second).undecided.len()), (1, 0));
    assert_eq!(topic.read().len(), 1);
}

/// [KSK-27] what may never happen is counted when it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_transaction_is_counted_with_its_records() {
    let topic = Topic::new(1).await;
    let mut driven = Driven::open(&topic, topic.config()).await;
    let handle: TransactionHandle = driven.prepare(1, &["a", "b"]).await.expect("prepare");
    // Somebody takes the id, which ends what is open under it.
    let thief = super::slots::client_of(&topic.bootstrap, &handle.transactional_id);
    driven.sink.commit(&handle).await.expect_err("it is gone");
    let lost = seen(&driven);
    assert_eq!((lost.lost, lost.lost_records, lost.committed, lost.undecided.len()), (1, 2, 0, 0));
    drop(thief);
}

/// [KSK-27] subtasks that share an account count together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_of_a_job_share_an_account() {
    let topic = Topic::new(1).await;
    let mut one = Driven::open(&topic, topic.config()).await;
    let mut other = Driven::open(&topic, topic.config()).await;
    other.sink = other.sink.metrics(one.metrics.clone());
    one.sink.begin(&name(1)).await.expect("begin");
    other.sink.begin(&name(1)).await.expect("begin");
    assert_eq!((seen(&one).begun, seen(&one).count(Phase::Open)), (2, 2));
}
