//! Handles of transactions that are over, while their id has another one.

use std::time::Duration;

use levada_core::template::Fate;
use levada_core::{CheckpointId, Timestamp};
use levada_kafka::sink::recovery::TransactionHandle;
use levada_kafka::sink::two_phase::ResolveError;
use rdkafka::producer::Producer as _;

use super::coordinator::Coordinator;
use super::prepared::{Attempt, begin_with, cluster_id, open_under, resolver};
use super::support::{PATIENCE, Topic};

/// [KSK-25] [KSK-07] [KSK-10] a handle of a transaction that was committed before ends no other of the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_handle_of_a_committed_transaction_touches_no_other() {
    let topic = Topic::new(1).await;
    let mut attempt = Attempt::open(&topic, 1).await;
    let resolver = resolver(&topic, &topic.bootstrap);
    let stale = attempt.prepare("first").await;
    attempt.commit(&stale).await;
    let other = attempt.prepare_under_the_id_of(&stale).await;
    assert_eq!((other.producer_id, other.epoch), (stale.producer_id, stale.epoch + 1));

    // Its marker shows that it is committed, so this is done.
    resolver.commit(&stale).await.expect("committed before");
    let error = resolver.abort(&stale).await.expect_err("it is visible");
    assert!(matches!(error, ResolveError::Visible { .. }), "{error:?}");
    let coordinator = Coordinator::at(&topic.bootstrap);
    let now = coordinator.ask(&other.transactional_id).await.expect("known");
    assert_eq!((now.state.as_str(), now.identity.epoch), ("Ongoing", other.epoch));
    attempt.commit(&other).await;
    coordinator.until(&other.transactional_id, "CompleteCommit").await;
    assert_eq!(topic.read().iter().filter(|read| read.text() == "first").count(), 1);
}

/// [KSK-15] what became of a transaction whose id was taken is found out by its marker, also while another one of its subtask
/// waits for its commit, with a marker that is not decided: each id has a group of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_of_a_transaction_that_waits_is_not_in_the_way_of_another() {
    let topic = Topic::new(1).await;
    let mut attempt = Attempt::open(&topic, 1).await;
    let resolver = resolver(&topic, &topic.bootstrap);
    let taken = attempt.prepare("taken").await;
    let other = open_under(&topic, &taken.transactional_id, "of another");
    let waiting = attempt.prepare("waiting").await;
    let both = [taken, waiting];
    assert_eq!(resolver.inspect(&both).await.expect("answers"), [Fate::Aborted, Fate::Pending]);
    other.abort_transaction(PATIENCE).expect("abort");
    resolver.abort(&both[1]).await.expect("abort");
    assert_eq!(resolver.inspect(&both).await.expect("answers"), [Fate::Aborted, Fate::Aborted]);
}

/// [KSK-25] [KSK-09] [KSK-15] a handle of a transaction that was aborted is refused when its id has another one, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_handle_of_an_aborted_transaction_is_refused() {
    let topic = Topic::new(1).await;
    let stale = Attempt::open(&topic, 1).await.prepare("gone").await;
    let resolver = resolver(&topic, &topic.bootstrap);
    resolver.abort(&stale).await.expect("abort");
    let other = open_under(&topic, &stale.transactional_id, "open");
    let coordinator = Coordinator::at(&topic.bootstrap);
    assert_eq!(coordinator.ask(&stale.transactional_id).await.expect("known").state, "Ongoing");

    let error = resolver.commit(&stale).await.expect_err("it is gone");
    assert!(matches!(error, ResolveError::Lost { .. }), "{error:?}");
    assert_eq!(coordinator.ask(&stale.transactional_id).await.expect("known").state, "Ongoing");
    assert!(topic.read().is_empty());
    other.abort_transaction(PATIENCE).expect("abort");
}

/// The counter-test: where two transactions share an epoch, the handle of the first publishes half of the second. What is
/// asked before a commit after a crash finds it out by when they began; the commit itself cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_epoch_for_two_transactions_a_stale_handle_publishes_half_of_the_other() {
    let topic = Topic::new(1).await;
    let id = format!("{}.delays.out.a1.s0.t0", topic.name);
    let producer = open_under(&topic, &id, "first");
    let coordinator = Coordinator::at(&topic.bootstrap);
    let first = coordinator.ask(&id).await.expect("known").identity;
    producer.commit_transaction(PATIENCE).expect("commit");
    coordinator.until(&id, "CompleteCommit").await;
    begin_with(&producer, &topic, "half");

    let stale = TransactionHandle {
        transactional_id: id.clone(),
        producer_id: first.producer_id,
        epoch: first.epoch,
        start: Some(Timestamp(1)),
        timeout: Duration::from_secs(300),
        checkpoint: CheckpointId::new(1, 1),
        attempt: 1,
        subtask: 0,
        partitions: [(topic.name.clone(), [0].into())].into(),
        records: 1,
        cluster_id: cluster_id(&topic).await,
    };
    let resolver = resolver(&topic, &topic.bootstrap);
    assert_eq!(resolver.inspect(std::slice::from_ref(&stale)).await.expect("an answer"), [Fate::Unknown]);
    // The coordinator takes it for the one that is open; only behind it the contradiction is seen.
    let late = resolver.commit(&stale).await.expect_err("it began at another time");
    assert!(matches!(late, ResolveError::Unchecked { .. }), "{late:?}");
    coordinator.until(&id, "CompleteCommit").await;
    let read = topic.read();
    assert_eq!(read.iter().map(|read| read.text()).collect::<Vec<_>>(), ["first", "half"]);
}
