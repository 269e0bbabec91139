//! Calls that cannot be meant are refused, and change nothing.

use levada_kafka::protocol::State;
use levada_kafka::sink::producing::{Message, SinkConfigError, TransactionTimeout};
use levada_kafka::sink::two_phase::StartError;
use levada_kafka::sink::writer::{Misuse, TransactionHandle, TransactionalWriter, WriterError};

use super::support::{Topic, both};

fn misuse<T: std::fmt::Debug>(refused: Result<T, WriterError>) -> Misuse {
    match refused {
        Err(WriterError::Misuse(misuse)) => misuse,
        other => panic!("{other:?}"),
    }
}

/// [KSK-28]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_before_what_was_left_is_resolved() {
    let topic = Topic::new().await;
    let mut writer = topic.writer(1);
    assert_eq!(misuse(writer.begin().await), Misuse::NotResolved);
    assert_eq!(misuse(writer.send(&Message::to("t")).await), Misuse::NotResolved);
    assert_eq!(misuse(writer.prepare().await), Misuse::NotResolved);
    assert_eq!(misuse(writer.discard().await), Misuse::NotResolved);
    writer.resolve(&[]).await.expect("nothing to resolve");
    assert_eq!(misuse(writer.resolve(&[]).await), Misuse::AlreadyResolved);
}

/// [KSK-28] each call has its place in the order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_out_of_their_order_are_refused() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let message = Message::to(&topic.name).partition(0).value(b"v");
    assert_eq!(misuse(writer.send(&message).await), Misuse::NotBegun { doing: "send" });
    assert_eq!(misuse(writer.prepare().await), Misuse::NotBegun { doing: "prepare" });
    assert_eq!(misuse(writer.discard().await), Misuse::NotBegun { doing: "discard" });
    writer.begin().await.expect("begun");
    assert_eq!(misuse(writer.begin().await), Misuse::AlreadyBegun);
    writer.send(&message).await.expect("sent");
    let handle = writer.prepare().await.expect("prepared").expect("a handle");
    assert_eq!(misuse(writer.send(&message).await), Misuse::NotBegun { doing: "send" });
    assert_eq!(misuse(writer.prepare().await), Misuse::NotBegun { doing: "prepare" });
    writer.commit(&handle).await.expect("committed");
    assert_eq!(topic.read().await, ["0:v"]);
}

/// [KSK-28] only what waits here is committed or aborted: no handle that differs in anything, and none twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handle_that_does_not_wait_here_is_refused() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let handle = topic.prepared(&mut writer, "v").await;
    let strangers = [
        TransactionHandle { epoch: handle.epoch + 1, ..handle.clone() },
        TransactionHandle { producer_id: handle.producer_id + 1, ..handle.clone() },
        TransactionHandle { records: 3, ..handle.clone() },
        TransactionHandle { transactional_id: "payments".to_owned(), ..handle.clone() },
    ];
    for stranger in &strangers {
        assert!(matches!(misuse(writer.commit(stranger).await), Misuse::NotPrepared { .. }));
        assert!(matches!(misuse(writer.abort(stranger).await), Misuse::NotPrepared { .. }));
    }
    assert_eq!(topic.state(&handle.transactional_id).await, Some(State::Ongoing));
    writer.commit(&handle).await.expect("committed");
    assert!(matches!(misuse(writer.commit(&handle).await), Misuse::NotPrepared { .. }));
    assert!(matches!(misuse(writer.abort(&handle).await), Misuse::NotPrepared { .. }));
    assert_eq!(topic.read().await, both(&["v"]));
}

/// [KSK-28] [KSK-17] a start resolves its own writer's handles of earlier attempts, and nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_others_and_of_no_earlier_attempt_are_refused() {
    let topic = Topic::new().await;
    let mut writer = topic.started().await;
    let handle = topic.prepared(&mut writer, "v").await;
    let of = |name| TransactionalWriter::new(topic.config(), &topic.name, name, 2).expect("it works");
    let foreign = misuse(of("invoices").resolve(std::slice::from_ref(&handle)).await);
    assert!(matches!(foreign, Misuse::Foreign { .. }), "{foreign:?}");
    let own = misuse(topic.writer(1).resolve(std::slice::from_ref(&handle)).await);
    assert!(matches!(own, Misuse::NotEarlier { theirs: 1, ours: 1, .. }), "{own:?}");
    // Also without its handle: an attempt that brokers have seen would initialise its ids, and abort what waits.
    for attempt in [0, 1] {
        let used = misuse(topic.writer(attempt).resolve(&[]).await);
        assert_eq!(used, Misuse::AttemptUsed { ours: attempt, seen: 1 });
    }
    assert_eq!(topic.state(&handle.transactional_id).await, Some(State::Ongoing));
    writer.commit(&handle).await.expect("committed");
    assert_eq!(topic.read().await, both(&["v"]));
}

/// [KSK-28] [KSK-19] what cannot work is refused before anything is written, with what it depends on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_that_cannot_work_is_refused() {
    let topic = Topic::new().await;
    let made = |config| TransactionalWriter::new(config, &topic.name, "orders", 1);
    let owned = made(topic.config().property("transactional.id", "mine")).expect_err("ours");
    assert!(matches!(owned, WriterError::Config(SinkConfigError::OwnedProperty { .. })), "{owned:?}");
    let nameless = TransactionalWriter::new(topic.config(), "", "orders", 1).expect_err("no prefix");
    assert!(matches!(nameless, WriterError::Name(_)), "{nameless:?}");
    let hour = TransactionTimeout::After(std::time::Duration::from_secs(3_600));
    let mut long = made(topic.config().transaction_timeout(hour)).expect("checked when connected");
    let refused = long.resolve(&[]).await.expect_err("above 15 min");
    assert!(matches!(refused, WriterError::Start(StartError::TimeoutTooLong { .. })), "{refused:?}");
    let missing =
        made(topic.config().topics(["not there"])).expect("checked when connected").resolve(&[]).await;
    assert!(matches!(missing, Err(WriterError::Start(StartError::Topic { .. }))), "{missing:?}");
    let kerberos = topic.config().property("security.protocol", "sasl_plaintext");
    let refused = made(kerberos).expect("checked when connected").resolve(&[]).await.expect_err("no means");
    assert!(matches!(refused, WriterError::Connect(_)), "{refused:?}");
}
