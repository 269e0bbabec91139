//! The brokers go away while a transaction is written, at its barrier, and at its commit.

use std::time::{Duration, Instant};

use levada_core::template::{Fate, TwoPhaseCommitSink};
use levada_core::{CheckpointId, ErrorClass};
use levada_kafka::protocol::{ProtocolClient, ProtocolConfig, TransactionAdmin as _};
use levada_kafka::sink::producing::KafkaSinkConfig;
use levada_testcontainers::Kafka;

use super::support::{PATIENCE, Topic, chain, context};
use super::two_phase::Driven;

/// How long the client waits for an answer before it sends a request again.
const REQUEST: Duration = Duration::from_secs(2);

fn impatient(topic: &Topic) -> KafkaSinkConfig {
    topic.config().topics([&topic.name]).property("request.timeout.ms", REQUEST.as_millis().to_string())
}

/// [KSK-26] at write: a standstill beyond the request timeout is waited out, without an error, and doubles nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standstill_while_writing_is_waited_out() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let mut driven = Driven::open(&topic, impatient(&topic)).await;
    let first = driven.prepare(1, &["0"]).await.expect("prepare");
    driven.commit_visibly(&first).await;
    driven.until_warm(2).await;
    broker.pause().expect("pause");
    let mut handle = driven.write(2, &["1", "2"]).await.expect("handed over");
    let mut pre_commit = Box::pin(driven.sink.pre_commit(&mut handle));
    // The request is out, and sent again behind its timeout.
    tokio::time::timeout(2 * REQUEST, &mut pre_commit).await.expect_err("nobody answers");
    broker.resume().expect("resume");
    tokio::time::timeout(PATIENCE, pre_commit).await.expect("in time").expect("pre-commit");
    driven.commit_visibly(&handle).await;
    assert_eq!(topic.texts_once_there_are(3), ["0", "1", "2"]);
}

/// [KSK-26] at the barrier: a standstill beyond the delivery timeout fails the pre-commit in time and says what was lost on
/// the way; whoever opens anew when the broker is back ends the left-over, writes again, and every record is there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standstill_beyond_the_delivery_timeout_fails_the_barrier_and_a_replay_is_exact() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let config = impatient(&topic).delivery_timeout(Duration::from_secs(5));
    let mut driven = Driven::open(&topic, config.clone()).await;
    let kept = driven.prepare(1, &["0"]).await.expect("prepare");
    driven.until_warm(2).await;
    broker.pause().expect("pause");
    let mut handle = driven.write(2, &["1", "2"]).await.expect("handed over");
    let failed = tokio::time::timeout(PATIENCE, driven.sink.pre_commit(&mut handle)).await;
    let failed = failed.expect("bounded").expect_err("away");
    assert_eq!(failed.class, ErrorClass::Reconnect);
    assert!(chain(&failed).contains("2 of 2 messages failed"), "{}", chain(&failed));
    driven.sink.close().await;
    broker.resume().expect("resume");

    let mut again = Driven::new(&topic, config);
    again.sink.open(context()).await.expect("open again");
    let found = again.sink.inspect(std::slice::from_ref(&kept)).await.expect("inspect");
    assert_eq!(found, Some(vec![Fate::Pending]), "what was pre-committed before still waits");
    let next_attempt = CheckpointId { attempt: 8, sequence: 1 };
    again.sink.fence(next_attempt, std::slice::from_ref(&kept)).await.expect("fence");
    again.commit_visibly(&kept).await;
    let handle = again.prepare_in(8, 1, &["1", "2"]).await.expect("write again");
    again.commit_visibly(&handle).await;
    assert_eq!(topic.texts_once_there_are(3), ["0", "1", "2"]);
}

/// [KSK-26] [KSK-09] at the commit: it fails in time and says that it may be tried again; tried again when the broker is back,
/// it succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standstill_at_the_commit_fails_it_in_time_and_a_retry_commits() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let mut driven = Driven::resolving_within(&topic, impatient(&topic), 2 * REQUEST).await;
    let handle = driven.prepare(1, &["0"]).await.expect("prepare");
    broker.pause().expect("pause");
    let started = Instant::now();
    let failed = driven.sink.commit(&handle).await.expect_err("nobody answers");
    assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
    assert_eq!(failed.class, ErrorClass::Reconnect);
    assert!(failed.class.is_retriable());
    let said = chain(&failed);
    assert!(said.contains("did not answer") && said.contains(&handle.transactional_id), "{said}");
    broker.resume().expect("resume");
    // What it has to catch up with may take longer than one try.
    let resumed = Instant::now();
    while let Err(error) = driven.sink.commit(&handle).await {
        assert!(error.class.is_retriable() && resumed.elapsed() < PATIENCE, "{}", chain(&error));
    }
    driven.coordinator.until(&handle.transactional_id, "CompleteCommit").await;
    assert_eq!(topic.texts_once_there_are(1), ["0"]);
    let seen = driven.metrics.snapshot(levada_core::Timestamp(0));
    assert!(seen.retries > 0 && seen.lost == 0 && seen.committed == 1, "{seen:?}");
}

/// [KSK-26] the coordinator is killed between barrier and commit, and its place is taken: the commit goes there by itself. So
/// does the next transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_follows_a_coordinator_that_moved() {
    let kafka = Kafka::builder().brokers(3).start().expect("three brokers");
    let topic = Topic::replicated(kafka.bootstrap()).await;
    let mut driven = Driven::open(&topic, topic.config().topics([&topic.name])).await;
    let handle = driven.prepare(1, &["0"]).await.expect("prepare");
    let config = ProtocolConfig::from_properties([("bootstrap.servers", kafka.bootstrap())]);
    let admin = ProtocolClient::new(config.expect("addresses")).expect("a client");
    let id = &handle.transactional_id;
    let coordinator = admin.find_coordinator(id, PATIENCE).await.expect("found");
    kafka.broker(usize::try_from(coordinator).expect("a broker")).kill();
    tokio::time::timeout(PATIENCE, driven.sink.commit(&handle)).await.expect("bounded").expect("commit");
    assert_ne!(admin.find_coordinator(id, PATIENCE).await.expect("found"), coordinator);
    let next =
        tokio::time::timeout(PATIENCE, driven.prepare(2, &["1"])).await.expect("bounded").expect("prepare");
    driven.sink.commit(&next).await.expect("commit");
    driven.sink.close().await;
    assert_eq!(topic.texts_once_there_are(2), ["0", "1"]);
}
