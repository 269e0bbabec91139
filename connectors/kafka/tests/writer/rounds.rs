//! Transactions of one run.

use std::time::Duration;

use levada_core::ErrorChain;
use levada_kafka::protocol::{State, TransactionAdmin as _};
use levada_kafka::sink::producing::{Message, TransactionTimeout};
use levada_kafka::sink::writer::{Misuse, TransactionHandle, TransactionalWriter, WriterError};
use levada_testcontainers::Kafka;

use super::support::{PATIENCE, Topic, both};

/// [KSK-28] begin, send, prepare, commit; the handle tells what is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_visible_when_they_are_committed_and_not_before() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    for (number, value) in ["one", "two", "three", "four"].into_iter().enumerate() {
        let handle = topic.prepared(&mut writer, value).await;
        assert_eq!((handle.records, handle.attempt, handle.checkpoint.sequence), (2, 1, number as u64 + 1));
        assert_eq!(handle.partitions, [(topic.name.clone(), [0, 1].into())].into());
        assert_eq!(topic.read().await.len(), number * 2);
        writer
            .commit(&TransactionHandle::from_bytes(&handle.to_bytes()).expect("a handle"))
            .await
            .expect("ok");
        assert_eq!(writer.prepared().count(), 0);
    }
    assert_eq!(topic.read().await, both(&["one", "two", "three", "four"]));
}

/// [KSK-28] several wait at once; they are committed oldest first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_transactions_wait_and_are_committed_in_their_order() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let mut handles = Vec::new();
    for value in ["a", "b", "c", "d", "e"] {
        handles.push(topic.prepared(&mut writer, value).await);
    }
    assert!(writer.prepared().eq(&handles));
    let refused = writer.commit(&handles[1]).await.expect_err("the first one waits");
    assert!(matches!(refused, WriterError::Misuse(Misuse::OutOfOrder { .. })), "{refused:?}");
    assert_eq!(topic.read().await.len(), 0);
    for handle in &handles {
        writer.commit(handle).await.expect("committed");
    }
    assert_eq!(topic.read().await, both(&["a", "b", "c", "d", "e"]));
}

/// [KSK-28] nothing sent: no handle, and the producer is used for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_without_a_message_has_no_handle() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    for _ in 0..5 {
        writer.begin().await.expect("begun");
        assert_eq!(writer.prepare().await.expect("prepared"), None);
        writer.begin().await.expect("begun");
        writer.discard().await.expect("discarded");
    }
    let listed = topic.admin.list(&[], PATIENCE).await.expect("listed");
    let slots = format!("{}.orders.writer.a1.", topic.name);
    let ours = listed.iter().filter(|listed| listed.transactional_id.starts_with(&slots));
    assert!(ours.count() <= 3, "no other was needed");
    let handle = topic.prepared(&mut writer, "v").await;
    writer.commit(&handle).await.expect("committed");
    assert_eq!(topic.read().await, both(&["v"]));
}

/// [KSK-28] aborted newest first, open or prepared; what follows is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_aborted_are_never_visible() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let first = topic.prepared(&mut writer, "kept").await;
    let second = topic.prepared(&mut writer, "aborted").await;
    let third = topic.prepared(&mut writer, "aborted, too").await;
    let refused = writer.abort(&second).await.expect_err("the third one waits");
    assert!(matches!(refused, WriterError::Misuse(Misuse::OutOfOrder { .. })), "{refused:?}");
    writer.begin().await.expect("begun");
    topic.send(&writer, 0, "discarded").await;
    writer.discard().await.expect("discarded");
    writer.abort(&third).await.expect("aborted");
    writer.abort(&second).await.expect("aborted");
    writer.commit(&first).await.expect("committed");
    // So many that every id that is free again has had one of them.
    for value in ["4", "5", "6", "7"] {
        let later = topic.prepared(&mut writer, value).await;
        writer.commit(&later).await.expect("committed");
    }
    assert_eq!(topic.read().await, both(&["kept", "4", "5", "6", "7"]));
    // Whoever has not struck them out yet is told the truth, also where only the marker could say otherwise.
    let resolution = topic.writer(2).resolve(&[second, third]).await.expect("resolved");
    assert_eq!(
        resolution.to_string(),
        "2 transactions with 4 records rolled back: 2 were gone, 0 too near their timeout"
    );
}

/// [KSK-28] a message that brokers do not take fails the transaction; discarded, nothing of it is seen, and the writer goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_with_a_failed_message_is_discarded() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    writer.begin().await.expect("begun");
    topic.send(&writer, 0, "small").await;
    topic.send(&writer, 1, &"x".repeat(5_000)).await;
    let failed = writer.prepare().await.expect_err("one is missing");
    assert!(matches!(failed, WriterError::Produce(_)) && !failed.is_retriable(), "{failed:?}");
    let mut broken = String::new();
    for refused in [writer.prepare().await.map(drop), writer.begin().await] {
        match refused.expect_err("it is broken") {
            WriterError::Misuse(Misuse::Broken { id, .. }) => broken = id,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(topic.state(&broken).await, Some(State::Ongoing));
    writer.discard().await.expect("discarded");
    let handle = topic.prepared(&mut writer, "again").await;
    writer.commit(&handle).await.expect("committed");
    assert_eq!(topic.read().await, both(&["again"]));
    assert_ne!(topic.state(&broken).await, Some(State::Ongoing));
}

/// [KSK-28] a `prepare` that is dropped leaves nothing behind once it is discarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepare_that_is_dropped_is_discarded() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    writer.begin().await.expect("begun");
    topic.send(&writer, 0, "dropped").await;
    {
        let mut prepare = Box::pin(writer.prepare());
        // The report of the message is under way.
        assert!(futures_util::poll!(prepare.as_mut()).is_pending());
    }
    let refused = writer.send(&Message::to(&topic.name)).await.expect_err("it is broken");
    assert!(matches!(refused, WriterError::Misuse(Misuse::Broken { .. })), "{refused:?}");
    writer.discard().await.expect("discarded");
    let handle = topic.prepared(&mut writer, "v").await;
    writer.commit(&handle).await.expect("committed");
    assert_eq!(topic.read().await, both(&["v"]));
}

/// [KSK-28] a transaction that has timed out is said to be lost, with partitions and records; never passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_timed_out_is_said_to_be_lost_with_its_records() {
    let broker = Kafka::builder()
        .property("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200")
        .start()
        .expect("a broker");
    let topic = Topic::at(broker.bootstrap()).await;
    let short = topic.config().transaction_timeout(TransactionTimeout::After(Duration::from_secs(2)));
    let writer = TransactionalWriter::new(short, &topic.name, "orders", 1).expect("it works");
    let mut writer = writer.margin(Duration::ZERO);
    writer.resolve(&[]).await.expect("nothing to resolve");
    let handle = topic.prepared(&mut writer, "gone").await;
    topic.until(&handle.transactional_id, State::CompleteAbort).await;
    let lost =
        tokio::time::timeout(PATIENCE, writer.commit(&handle)).await.expect("in time").expect_err("gone");
    assert!(lost.is_lost() && !lost.is_retriable(), "{lost:?}");
    let text = ErrorChain(&lost).to_string();
    assert!(text.contains(&format!("with 2 records in {}[0, 1] was aborted", topic.name)), "{text}");
    writer.abort(&handle).await.expect("it is gone already");
    let again = topic.prepared(&mut writer, "again").await;
    writer.commit(&again).await.expect("committed");
    assert_eq!(topic.read().await, both(&["again"]));
}
