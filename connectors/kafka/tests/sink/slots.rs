//! Slots: ready before they are needed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use levada_core::BoxError;
use levada_kafka::sink::producing::{Guarantee, KafkaSinkConfig, Message, ProduceError, TransactionTimeout};
use levada_kafka::sink::slot::{Describe, Freeze, FrozenSlot, OpenSlot, ProducerIdentity, SlotState, Slots};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, Producer as _};

use super::coordinator::{Coordinator, TRANSACTIONAL_ID_NOT_FOUND};
use super::support::{PATIENCE, Topic, chain};

pub(crate) fn exactly_once(topic: &Topic) -> KafkaSinkConfig {
    topic.config().guarantee(Guarantee::ExactlyOnceByCheckpoint).topics([&topic.name])
}

pub(crate) fn started(topic: &Topic, config: KafkaSinkConfig) -> (Slots<Coordinator>, Arc<Coordinator>) {
    let coordinator = Coordinator::at(&topic.bootstrap);
    let prefix = unique_name("slots");
    let naming = move |slot| format!("{prefix}.t{slot}");
    (Slots::start(config, naming, Arc::clone(&coordinator)).expect("it works"), coordinator)
}

/// Makes a client of an id, which ends what is open under it.
pub(crate) fn client_of(bootstrap: &str, id: &str) -> BaseProducer {
    let client: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", id)
        .create()
        .expect("a client");
    client.init_transactions(PATIENCE).expect("initialised");
    client
}

/// Waits until so many slots are in a state.
pub(crate) async fn until<D: Describe>(slots: &Slots<D>, count: usize, state: SlotState) {
    let mut standings = slots.standings();
    let enough = standings.wait_for(|all| all.values().filter(|one| one.state == state).count() == count);
    tokio::time::timeout(PATIENCE, enough).await.expect("in time").expect("the slots are there");
}

pub(crate) async fn write(slot: &OpenSlot, topic: &Topic, value: &str) {
    slot.send(&Message::to(&topic.name).partition(0).value(value.as_bytes()), None).await.expect("send");
}

pub(crate) async fn frozen(slot: OpenSlot) -> FrozenSlot {
    match slot.freeze().await.expect("freeze") {
        Freeze::Frozen(frozen) => frozen,
        other => panic!("{other:?}"),
    }
}

/// [KSK-07] three at the least, made ready in the background, and the next one is there at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_slot_is_there_without_waiting() {
    let topic = Topic::new(1).await;
    let (mut slots, _) = started(&topic, exactly_once(&topic));
    until(&slots, 3, SlotState::Warm).await;
    let mut in_use = Vec::new();
    for _ in 0..3 {
        let slot = slots.open().now_or_never().expect("without waiting").expect("a slot");
        write(&slot, &topic, "v").await;
        in_use.push(frozen(slot).await);
    }
    // All are taken, so one more is on the way already.
    until(&slots, 1, SlotState::Warm).await;
    assert_eq!(slots.standings().borrow().len(), 4);
    slots.open().now_or_never().expect("without waiting").expect("a fourth slot");
}

/// [KSK-07] a slot that is freed comes back under its id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_is_used_again_when_it_was_freed_and_not_before() {
    let topic = Topic::new(1).await;
    let (mut slots, coordinator) = started(&topic, exactly_once(&topic));
    until(&slots, 3, SlotState::Warm).await;
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "v").await;
    let (id, first) = (slot.id().to_owned(), slot.identity());
    let frozen = frozen(slot).await;
    assert_eq!(coordinator.ask(&id).await.expect("described").state, "Ongoing");
    coordinator.commit_visibly(&id, first).await;
    assert_eq!(coordinator.ask(&id).await.expect("described").identity, first, "not initialised again yet");
    slots.free(frozen);
    until(&slots, 3, SlotState::Warm).await;
    let again = coordinator.ask(&id).await.expect("described");
    assert_eq!((again.state.as_str(), again.identity.epoch), ("Empty", first.epoch + 1));
}

/// [KSK-07] brokers forget ids that are not used: a slot that has been ready for long is asked about, and made ready again, before
/// it would fail the first transaction after a quiet time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_that_the_brokers_have_forgotten_is_made_ready_again() {
    let expiring = Kafka::builder().property("transactional.id.expiration.ms", "5000");
    let kafka = expiring
        .property("transaction.remove.expired.transaction.cleanup.interval.ms", "200")
        .property("producer.id.expiration.ms", "5000")
        .start()
        .expect("a broker");
    let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
    let coordinator = Coordinator::at(&topic.bootstrap);
    let naming = |slot| format!("forgotten.t{slot}");
    let slots = Slots::start(exactly_once(&topic), naming, Arc::clone(&coordinator)).expect("it works");
    let mut slots = slots.known_for(Duration::ZERO);
    until(&slots, 3, SlotState::Warm).await;
    for slot in 0..3 {
        forgotten(&coordinator, &naming(slot)).await;
    }
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "v").await;
    frozen(slot).await;
}

/// Waits until its coordinator does not know an id.
async fn forgotten(coordinator: &Coordinator, id: &str) {
    let started = std::time::Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    while coordinator.ask(id).await.expect("told").error != TRANSACTIONAL_ID_NOT_FOUND {
        assert!(started.elapsed() < PATIENCE, "{id} is forgotten in time");
        looks.tick().await;
    }
}

/// A slot that is given up is left alone: initialising its id would end a transaction that recovery may know of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_that_is_dropped_is_not_initialised_again() {
    let topic = Topic::new(1).await;
    let (mut slots, coordinator) = started(&topic, exactly_once(&topic));
    until(&slots, 3, SlotState::Warm).await;
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "v").await;
    let (id, identity) = (slot.id().to_owned(), slot.identity());
    drop(frozen(slot).await);
    until(&slots, 1, SlotState::Left).await;
    for _ in 0..2 {
        let slot = slots.open().await.expect("a slot");
        assert_ne!(slot.id(), id);
        write(&slot, &topic, "v").await;
        drop(frozen(slot).await);
    }
    // A fourth one, instead of the first.
    let slot = slots.open().await.expect("a slot");
    assert_ne!(slot.id(), id);
    let left = coordinator.ask(&id).await.expect("described");
    assert_eq!((left.state.as_str(), left.identity), ("Ongoing", identity));
}

/// Tells whether the slot's client knows the topic before it has sent anything there: only then can it say at once that there
/// is no such partition.
fn knows(slot: &OpenSlot, topic: &Topic) -> bool {
    let missing = Message::to(&topic.name).partition(7);
    slot.send(&missing, None).now_or_never().expect("there is room").is_err()
}

/// [KSK-08] warming's part: a warm slot knows the topics in use before its first message, whether they were named or learnt
/// from the transaction before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn warm_slot_knows_the_topics_in_use() {
    let (named, noted, learnt) = (Topic::new(1).await, Topic::new(1).await, Topic::new(1).await);
    let (mut slots, coordinator) = started(&named, exactly_once(&named));
    until(&slots, 3, SlotState::Warm).await;
    let slot = slots.open().await.expect("a slot");
    write(&slot, &learnt, "v").await;
    let (id, frozen) = (slot.id().to_owned(), frozen(slot).await);
    coordinator.commit_visibly(&id, frozen.identity()).await;
    slots.note_topic(&noted.name);
    slots.free(frozen);
    // Slots that were warm already know what the configuration names.
    let slot = slots.open().await.expect("a slot");
    assert!(!knows(&slot, &learnt) && knows(&slot, &named));
    drop(slot);
    drop(slots.open().await.expect("a slot"));
    let slot = slots.open().await.expect("a slot");
    assert_eq!(slot.id(), id, "the one that was freed");
    assert!(knows(&slot, &learnt));
    until(&slots, 1, SlotState::Warm).await;
    let slot = slots.open().await.expect("a slot");
    assert!(knows(&slot, &noted));
}

#[derive(Debug)]
struct Silent;

impl Describe for Silent {
    async fn describe(&self, _id: &str) -> Result<Option<ProducerIdentity>, BoxError> {
        Err("the coordinator is not to be asked".into())
    }
}

/// [KSK-08] warming's part: a slot whose producer id is not known is not warm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slot_without_a_known_producer_id_is_not_opened() {
    let topic = Topic::new(1).await;
    let prefix = unique_name("slots");
    let naming = move |slot| format!("{prefix}.t{slot}");
    let mut slots = Slots::start(exactly_once(&topic), naming, Arc::new(Silent)).expect("it works");
    for _ in 0..2 {
        let refused = slots.open().await.expect_err("not known");
        assert!(chain(&refused).contains("the coordinator is not to be asked"), "{}", chain(&refused));
        assert!(matches!(refused, ProduceError::Describe { .. }));
    }
}

#[derive(Debug)]
struct Panics;

impl Describe for Panics {
    async fn describe(&self, _id: &str) -> Result<Option<ProducerIdentity>, BoxError> {
        panic!("on purpose")
    }
}

/// A panic in what others have given is no endless wait for a slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_while_a_slot_is_made_ready_fails_its_opening() {
    let topic = Topic::new(1).await;
    let prefix = unique_name("slots");
    let naming = move |slot| format!("{prefix}.t{slot}");
    let mut slots = Slots::start(exactly_once(&topic), naming, Arc::new(Panics)).expect("it works");
    let refused = tokio::time::timeout(PATIENCE, slots.open()).await.expect("in time").expect_err("lost");
    assert!(matches!(refused, ProduceError::Lost { .. }), "{refused:?}");
}

/// [KSK-19] the timeout's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_above_the_brokers_maximum_is_refused_with_the_reason() {
    let topic = Topic::new(1).await;
    let long = TransactionTimeout::After(Duration::from_secs(3600));
    let (mut slots, _) = started(&topic, exactly_once(&topic).transaction_timeout(long));
    let refused = slots.open().await.expect_err("above 15 minutes");
    assert!(matches!(refused, ProduceError::TimeoutTooLong { timeout_ms: 3_600_000, .. }), "{refused:?}");
    assert!(chain(&refused).contains("transaction.max.timeout.ms"), "{}", chain(&refused));
}

/// [KSK-20] the producer's part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_without_a_timeout_is_one_in_the_coordinators_eyes() {
    let broker =
        Kafka::builder().property("transaction.max.timeout.ms", "2147483647").start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let config = exactly_once(&topic).transaction_timeout(TransactionTimeout::Never);
    let (mut slots, coordinator) = started(&topic, config);
    let slot = slots.open().await.expect("a slot");
    write(&slot, &topic, "v").await;
    let frozen = frozen(slot).await;
    let described = coordinator.ask(frozen.id()).await.expect("described");
    assert_eq!((described.state.as_str(), described.timeout_ms), ("Ongoing", i32::MAX));
}
