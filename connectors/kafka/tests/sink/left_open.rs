//! Transactions that are committed, says their coordinator, and open in a partition: as if their marker had been left out.

use std::time::Duration;

use levada_core::CheckpointId;
use levada_kafka::sink::metrics::SinkMetrics;
use levada_kafka::sink::recovery::TransactionHandle;
use levada_kafka::sink::writer::TransactionalWriter;
use levada_testcontainers::{Kafka, KafkaBuilder, Security};
use rdkafka::producer::{BaseRecord, Producer as _};

use super::acl;
use super::coordinator::Coordinator;
use super::prepared::{Attempt, cluster_id, open_under, resolver, resolver_with};
use super::support::{PATIENCE, Topic, chain};

/// A broker that does not ask coordinators about what is written. So it takes records behind the end of a transaction, which
/// leave it open.
fn credulous() -> KafkaBuilder {
    Kafka::builder().property("transaction.partition.verification.enable", "false")
}

/// Leaves a committed transaction of an id open behind its record "seen", in front of its record "hidden".
async fn leave_open(topic: &Topic, id: &str) -> TransactionHandle {
    let producer = open_under(topic, id, "seen");
    let coordinator = Coordinator::at(&topic.bootstrap);
    let identity = coordinator.ask(id).await.expect("known").identity;
    coordinator.commit_visibly(id, identity).await;
    // The client has not heard of it.
    let record = BaseRecord::<str, str>::to(&topic.name).payload("hidden");
    producer.send(record).map_err(|(error, _)| error).expect("send");
    producer.flush(PATIENCE).expect("flush");
    TransactionHandle {
        transactional_id: id.to_owned(),
        producer_id: identity.producer_id,
        epoch: identity.epoch,
        start: None,
        timeout: Duration::from_secs(300),
        checkpoint: CheckpointId::new(1, 1),
        attempt: 1,
        subtask: 0,
        partitions: [(topic.name.clone(), [0].into())].into(),
        records: 2,
        cluster_id: cluster_id(topic).await,
    }
}

fn id_of(topic: &Topic, slot: u32) -> String {
    format!("{}.delays.out.a1.s0.t{slot}", topic.name)
}

/// [KSK-09] a commit by its handle ends only when readers see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_by_its_handle_makes_visible_what_is_committed_and_open() {
    let kafka = credulous().start().expect("a broker");
    let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
    let handle = leave_open(&topic, &id_of(&topic, 0)).await;
    assert_eq!(texts(&topic), ["seen"]);
    let metrics = SinkMetrics::new();
    let resolver = resolver(&topic, kafka.bootstrap()).metrics(metrics.clone());
    resolver.commit(&handle).await.expect("commit");
    assert_eq!(texts(&topic), ["seen", "hidden"]);
    assert_eq!(metrics.snapshot(levada_core::Timestamp(0)).markers_written, 1);
    resolver.commit(&handle).await.expect("the same again");
    assert_eq!(metrics.snapshot(levada_core::Timestamp(0)).markers_written, 1, "once");
}

/// [KSK-12] [KSK-17] a process that is killed between a commit and the look behind it leaves no handle. The next start finds what
/// is committed and open by its names; what is open under names of others, or not committed, is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_makes_visible_what_earlier_attempts_have_committed() {
    let kafka = credulous().start().expect("a broker");
    let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
    leave_open(&topic, &id_of(&topic, 0)).await;
    let others = format!("{}-bar.delays.out.a1.s0.t0", topic.name);
    leave_open(&topic, &others).await;
    // The one in front holds back the other one's first record, too.
    assert_eq!(texts(&topic), ["seen"]);
    let mut next = Attempt::open(&topic, 2).await;
    next.fence(&[]).await;
    assert_eq!(texts(&topic), ["seen", "hidden", "seen"], "and not what the other one has hidden");
}

/// [KSK-12] [KSK-28] the same of a writer: what its handles name, and what it finds by its names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_of_a_writer_makes_visible_what_is_committed() {
    let kafka = credulous().start().expect("a broker");
    for is_noted in [true, false] {
        let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
        let id = format!("{}.orders.writer.a1.s0.t0", topic.name);
        let handle = leave_open(&topic, &id).await;
        // One knows the topic by the handle, the other by the configuration.
        let (config, noted) = match is_noted {
            true => (topic.config(), vec![handle]),
            false => (topic.config().topics([&topic.name]), vec![]),
        };
        let mut writer = TransactionalWriter::new(config, &topic.name, "orders", 2).expect("it works");
        writer.resolve(&noted).await.expect("resolved");
        assert_eq!(texts(&topic), ["seen", "hidden"], "noted: {is_noted}");
    }
}

/// [KSK-09] [KSK-19] without the right to write a marker the commit fails, and says what is hidden, from where on, what not to do
/// and what to grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_that_may_not_be_written_fails_the_commit_and_says_what_to_do() {
    let kafka = acl::authorizing(credulous().secured()).start().expect("a broker");
    let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
    let handle = leave_open(&topic, &id_of(&topic, 0)).await;
    acl::reserve_cluster(&kafka).await;
    let properties = kafka.client_properties(Security::Tls).expect("TLS");
    let resolver = resolver_with(&topic, properties);
    let failed = resolver.commit(&handle).await.expect_err("it may not");
    assert!(failed.is_retriable(), "the right may be granted");
    let said = chain(&failed);
    let place = format!("{}[0], from offset 2 on", topic.name);
    for part in [
        handle.transactional_id.as_str(),
        place.as_str(),
        "is committed",
        "Do NOT abort it by Kafka's tool",
        "Grant ALTER on the cluster",
        "CLUSTER_AUTHORIZATION_FAILED (31)",
    ] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert_eq!(texts(&topic), ["seen"]);
}

fn texts(topic: &Topic) -> Vec<String> {
    topic.read().iter().map(|read| read.text().to_owned()).collect()
}
