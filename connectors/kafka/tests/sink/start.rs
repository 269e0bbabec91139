//! What is refused before anything is written.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use levada_core::template::TwoPhaseCommitSink;
use levada_core::{ErrorClass, SinkError};
use levada_engine::Job;
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_kafka::sink::producing::{AsRead, KafkaSinkConfig, TransactionTimeout};
use levada_kafka::sink::two_phase::TransactionalSink;
use levada_kafka::source::{KafkaSource, KafkaSourceConfig};
use levada_testcontainers::{Kafka, Security};

use super::acl;
use super::peer::{Peer, Reply, all_spoken, encoded, versions, way_in};
use super::support::{Topic, chain, context};

/// Opens a sink that is to be refused.
async fn refused(config: KafkaSinkConfig, prefix: &str) -> SinkError {
    let sink = TransactionalSink::<(), _>::new(config, prefix, "out", AsRead::to("somewhere"));
    let mut sink = sink.expect("it works without a broker");
    let refused = sink.open(context()).await.expect_err("refused");
    sink.close().await;
    refused
}

fn says(refused: &SinkError, all: &[&str]) {
    let said = chain(refused);
    for part in all {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// [KSK-19]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_above_the_brokers_bound_is_refused_with_both_and_the_relation() {
    let topic = Topic::new(1).await;
    let long = TransactionTimeout::After(Duration::from_secs(3600));
    let refused = refused(topic.config().transaction_timeout(long), &topic.name).await;
    assert_eq!(refused.class, ErrorClass::Fatal);
    says(&refused, &["3600s", "transaction.max.timeout.ms, 900s", "checkpoint interval", "longest outage"]);
}

/// [KSK-19]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_below_interval_checkpoint_timeout_and_downtime_is_refused_with_the_sum() {
    let topic = Topic::new(1).await;
    let (bootstrap, name) = (topic.bootstrap.clone(), topic.name.clone());
    let minute = Duration::from_secs(60);
    let config = topic.config().transaction_timeout(TransactionTimeout::After(3 * minute));
    let source = move |_| KafkaSource::new(KafkaSourceConfig::new(&bootstrap, [&name])).expect("a source");
    let name = topic.name.clone();
    let sink =
        move |_| TransactionalSink::new(config.clone(), &name, "out", AsRead::to(&name)).expect("it works");
    let job = Job::new("delays").source("in", source).checkpointed();
    let job = job.two_phase_sink("out", TwoPhaseOptions::default(), sink);
    let settings =
        CheckpointSettings { interval: Some(minute), timeout: minute, ..CheckpointSettings::default() };
    let job = job.checkpoints(settings).downtime(2 * minute);
    let refused = job.run(Store::open("memory:").await.expect("a store")).await.expect_err("too short");
    let said = chain(&refused);
    for part in
        ["180s", "240s", "60s from one checkpoint", "60s until a checkpoint", "120s of stated downtime"]
    {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// [KSK-19] the raw client goes by the producer's own security settings, and says so when they are wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_certificates_are_refused_at_the_start() {
    let kafka = Kafka::builder().secured().start().expect("a broker");
    let right = kafka.client_properties(Security::Tls).expect("TLS");
    let somebody = kafka.client_files().expect("files").certificate.display().to_string();
    let bootstrap = right.iter().find(|(name, _)| name == "bootstrap.servers").expect("an address").1.clone();
    let others = right.into_iter().filter(|(name, _)| name != "bootstrap.servers");
    let config = KafkaSinkConfig::new(bootstrap).properties(others.collect());
    let mut sink =
        TransactionalSink::<(), _>::new(config.clone(), "tls", "out", AsRead::to("t")).expect("it works");
    sink.open(context()).await.expect("the right ones");
    sink.close().await;
    let refused = refused(config.property("ssl.ca.location", somebody), "tls").await;
    assert_eq!(refused.class, ErrorClass::Fatal);
    says(&refused, &["same security settings", "ssl.ca.location"]);
}

/// [KSK-19] a peer stands in for an old broker: what counts is what it says that it speaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_that_cannot_be_asked_about_transactions_is_refused_as_too_old() {
    let peer = Peer::start(|port, asked| match asked.api {
        ApiKey::ApiVersions => {
            let mut spoken = all_spoken();
            spoken.remove(&(ApiKey::DescribeTransactions as i16));
            Reply::Answer(encoded(&versions(&spoken), asked.version))
        }
        _ => way_in(port, asked).expect("a way in"),
    })
    .await;
    let refused = refused(KafkaSinkConfig::new(&peer.address), "old").await;
    assert_eq!(refused.class, ErrorClass::Fatal);
    says(&refused, &["needs Kafka 3.0", "DescribeTransactions", "lost or written twice", &peer.address]);
}

/// [KSK-19] rights on ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_that_may_not_be_used_are_refused_with_the_right_that_is_missing() {
    let kafka = acl::broker();
    acl::reserve_ids(&kafka, "taken.").await;
    let refused = refused(KafkaSinkConfig::new(kafka.bootstrap()), "taken").await;
    assert_eq!(refused.class, ErrorClass::Fatal);
    says(&refused, &["taken.delays.out.", "grant WRITE", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53)"]);
    let others = TransactionalSink::<(), _>::new(
        KafkaSinkConfig::new(kafka.bootstrap()),
        "free",
        "out",
        AsRead::to("t"),
    );
    let mut others = others.expect("it works");
    others.open(context()).await.expect("nobody has reserved these");
    others.close().await;
}

/// [KSK-19] rights on topics: who may not read cannot find out whether what was committed is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_that_may_not_be_read_is_refused_with_the_right_that_is_missing() {
    let kafka = acl::broker();
    let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
    acl::reserve_reading(&kafka, &topic.name).await;
    let refused = refused(topic.config().topics([&topic.name]), &topic.name).await;
    assert_eq!(refused.class, ErrorClass::Fatal);
    says(&refused, &[&topic.name, "grant READ", "TOPIC_AUTHORIZATION_FAILED (29)"]);
}

/// [KSK-19] topics that were named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_that_is_named_and_missing_is_refused() {
    let topic = Topic::new(1).await;
    let refused = refused(topic.config().topics(["no-such-topic"]), &topic.name).await;
    assert_eq!(refused.class, ErrorClass::Fatal);
    says(&refused, &["topic no-such-topic cannot be written to", "UNKNOWN_TOPIC_OR_PARTITION (3)"]);
}
