//! A transaction that begins need not wait for its producer.

use std::time::Instant;

use futures_util::FutureExt;
use levada_core::template::TwoPhaseCommitSink;
use levada_core::{CheckpointId, SinkContext};
use levada_kafka::protocol::{ProtocolClient, ProtocolConfig, State, TransactionAdmin as _};

use super::support::{PATIENCE, Topic, context};
use super::two_phase::{Driven, name};

/// Waits until so many ids of the topic's sink are initialised and have nothing open.
async fn until_ready(topic: &Topic, count: usize) {
    let config = ProtocolConfig::from_properties([("bootstrap.servers", &topic.bootstrap)]);
    let admin = ProtocolClient::new(config.expect("an address")).expect("a client");
    let started = Instant::now();
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(10));
    let head = format!("{}.delays.out.a", topic.name);
    loop {
        let listed = admin.list(&[State::Empty], PATIENCE).await.expect("listed");
        if listed.iter().filter(|listed| listed.transactional_id.starts_with(&head)).count() == count {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{count} ids in time: {listed:?}");
        looks.tick().await;
    }
}

/// [KSK-07] [KSK-08] producers are made ready when the attempt is known, not with the first record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_warm_before_the_first_transaction() {
    let topic = Topic::new(1).await;
    let mut driven = Driven::open(&topic, topic.config().topics([&topic.name])).await;
    driven.until_warm(3).await;
    until_ready(&topic, 3).await;
    let handle = driven.sink.begin(&name(1)).now_or_never().expect("without waiting").expect("begin");
    assert!(handle.transactional_id.starts_with(&format!("{}.delays.out.a7.s0.t", topic.name)));
}

/// A sink that only resolves what others have left, at a start, makes no producer and takes no id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sink_that_is_only_asked_makes_no_producer() {
    let topic = Topic::new(1).await;
    let mut driven = Driven::new(&topic, topic.config());
    driven.sink.open(SinkContext { parallelism: 1, ..context() }).await.expect("open");
    driven.sink.fence(CheckpointId { attempt: 7, sequence: 1 }, &[]).await.expect("fence");
    assert!(driven.sink.slots().is_none(), "no slots");
    until_ready(&topic, 0).await;
    driven.sink.close().await;
}
