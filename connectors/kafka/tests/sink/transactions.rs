//! What a slot's transaction holds.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_kafka::sink::producing::{Message, ProduceError, TransactionTimeout};
use levada_kafka::sink::slot::{Freeze, SlotState};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, Producer as _};

use super::slots::{exactly_once, frozen, started, until, write};
use super::support::{PATIENCE, Read, Topic, chain};

/// [KSK-07] one fresh epoch per transaction, also under one id; and nobody sees records before the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_transaction_has_an_epoch_of_its_own() {
    let topic = Topic::new(1).await;
    let (mut slots, coordinator) = started(&topic, exactly_once(&topic));
    let mut seen = BTreeSet::new();
    for number in 0..8 {
        let slot = slots.open().await.expect("a slot");
        let identity = slot.identity();
        write(&slot, &topic, &number.to_string()).await;
        let frozen = frozen(slot).await;
        assert_eq!(frozen.identity(), identity);
        let described = coordinator.ask(frozen.id()).await.expect("described");
        assert_eq!((described.state.as_str(), described.identity), ("Ongoing", identity));
        assert!(seen.insert((identity.producer_id, identity.epoch)), "{identity} was there before");
        assert_eq!(topic.read().len(), number, "invisible before the commit");
        coordinator.commit_visibly(frozen.id(), identity).await;
        slots.free(frozen);
    }
    assert_eq!(topic.read().iter().map(Read::text).collect::<String>(), "01234567");
    // Eight transactions, three ids: epochs did change under an id.
    assert_eq!(slots.standings().borrow().len(), 3);
}

/// The premise of a client for each transaction: one client cannot get a second epoch.
#[test]
fn client_initialises_its_id_only_once() {
    let bootstrap = Kafka::shared().expect("a broker").bootstrap().to_owned();
    let client: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", unique_name("once"))
        .create()
        .expect("a client");
    client.init_transactions(PATIENCE).expect("once");
    client.init_transactions(PATIENCE).expect_err("not twice");
}

/// [KSK-08] the counts of the handle are what brokers acknowledged; an empty transaction is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_slot_knows_what_it_holds_and_an_empty_one_stays_open() {
    let topic = Topic::new(3).await;
    let (mut slots, coordinator) = started(&topic, exactly_once(&topic));
    let slot = slots.open().await.expect("a slot");
    let slot = match slot.freeze().await.expect("freeze") {
        Freeze::Empty(slot) => slot,
        other => panic!("{other:?}"),
    };
    assert_eq!(coordinator.ask(slot.id()).await.expect("described").state, "Empty");
    for partition in [0, 2, 2] {
        let message = Message::to(&topic.name).partition(partition).key(b"k").value(b"vv");
        slot.send(&message, None).await.expect("send");
    }
    let delivered = frozen(slot).await.delivered();
    assert_eq!((delivered.messages, delivered.bytes), (3, 9));
    let partitions = [((topic.name.clone(), 0), 1), ((topic.name.clone(), 2), 2)].into();
    assert_eq!(delivered.partitions, partitions);
}

/// [KSK-03] a transaction that lacks a message is never frozen, though all reports are in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_with_a_failed_message_is_not_frozen() {
    let topic = Topic::with(1, &[("max.message.bytes", "2000")]).await;
    let (mut slots, _) = started(&topic, exactly_once(&topic));
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "small").await;
    slot.producer().flush().await.expect("flush");
    write(&slot, &topic, &"x".repeat(5000)).await;
    let failed = slot.freeze().await.expect_err("one is missing");
    assert!(matches!(failed, ProduceError::NotDelivered { failed: 1, sent: 2, .. }), "{failed:?}");
    until(&slots, 1, SlotState::Left).await;
    assert_eq!(topic.read().len(), 0);
}

/// [KSK-07] an aborted slot goes round like a committed one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_slot_is_freed_and_its_records_are_never_seen() {
    let topic = Topic::new(1).await;
    let (mut slots, coordinator) = started(&topic, exactly_once(&topic));
    until(&slots, 3, SlotState::Warm).await;
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "never seen").await;
    slot.producer().flush().await.expect("flush");
    let (id, identity) = (slot.id().to_owned(), slot.identity());
    let aborted = slot.abort(PATIENCE).await.expect("abort");
    slots.free(aborted);
    until(&slots, 3, SlotState::Warm).await;
    let again = coordinator.ask(&id).await.expect("described");
    assert_eq!(again.identity.epoch, identity.epoch + 1);
    assert_eq!(topic.read().len(), 0);
}

/// [KSK-04] [KSK-26] the coordinator ends a transaction that is open for too long: the next write fails, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_timed_out_fails_the_next_write() {
    let broker = Kafka::builder()
        .property("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200")
        .start()
        .expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let short = TransactionTimeout::After(Duration::from_secs(3));
    let (mut slots, coordinator) = started(&topic, exactly_once(&topic).transaction_timeout(short));
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "too old").await;
    slot.producer().flush().await.expect("flush");
    coordinator.until(slot.id(), "CompleteAbort").await;
    write(&slot, &topic, "too late").await;
    let failure = tokio::time::timeout(PATIENCE, slot.producer().failed()).await.expect("in time");
    assert!(failure.is_fenced(), "{}", chain(&failure));
    slot.freeze().await.expect_err("not to be committed");
    assert_eq!(topic.read().len(), 0);
}
