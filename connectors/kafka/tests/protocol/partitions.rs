//! What brokers tell about partitions, groups, and themselves.

use std::collections::BTreeMap;

use levada_kafka::protocol::{Committed, Ending, ErrorCode, ProtocolError, State, TransactionAdmin as _};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::admin::AdminOptions;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::Producer as _;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::support::{
    LONG, PATIENCE, admin, client, described, key, leave_open, make_topic, shared, topic, until_state, write,
    writer,
};

/// [KSK-21] who holds readers of committed records back, and from where on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_of_an_open_transaction_is_named_with_its_first_offset() {
    let (bootstrap, id) = (shared(), unique_name("tx"));
    let topic = topic(&bootstrap, 2).await;
    let client = client(&bootstrap);
    assert!(client.describe_producers(&topic, 1, PATIENCE).await.expect("asked").is_empty());
    let producer = writer(&bootstrap, &id, LONG);
    write(&producer, &topic, &[(1, "a"), (1, "b")]);
    producer.commit_transaction(PATIENCE).expect("commit");
    until_state(&client, &id, State::CompleteCommit).await;
    write(&producer, &topic, &[(1, "c")]);
    let open = described(&client, &id).await.expect("known").identity;

    let told = client.describe_producers(&topic, 1, PATIENCE).await.expect("asked");
    let [producer] = &told[..] else { panic!("one producer: {told:?}") };
    assert_eq!((producer.producer_id, producer.epoch), (open.producer_id, i32::from(open.epoch)));
    // Two records and the marker of their commit stand before it.
    assert_eq!(producer.open_from, Some(3));
    assert!(producer.last.is_some());
    assert!(client.describe_producers(&topic, 0, PATIENCE).await.expect("asked").is_empty());

    client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect("commit");
    until_state(&client, &id, State::CompleteCommit).await;
    let told = client.describe_producers(&topic, 1, PATIENCE).await.expect("asked");
    assert!(told.iter().all(|producer| producer.open_from.is_none()), "{told:?}");
}

/// [KSK-21] many partitions at once, each with its own; what is not there is left out, and takes nothing from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_of_many_partitions_are_told_together() {
    let (bootstrap, ids) = (shared(), [unique_name("tx"), unique_name("tx")]);
    let (first, second) = (topic(&bootstrap, 3).await, topic(&bootstrap, 1).await);
    let (client, never) = (client(&bootstrap), unique_name("never"));
    leave_open(&bootstrap, &ids[0], &first, &[(0, "a"), (2, "b")]);
    leave_open(&bootstrap, &ids[1], &second, &[(0, "c")]);
    let one = described(&client, &ids[0]).await.expect("known").identity.producer_id;
    let other = described(&client, &ids[1]).await.expect("known").identity.producer_id;
    let asked = BTreeMap::from([
        (first.clone(), [0, 1, 2, 7].into()),
        (second.clone(), [0].into()),
        (never, [0].into()),
    ]);
    let told = client.describe_producers_of(&asked, PATIENCE).await.expect("asked");
    let ids = told.iter().map(|((topic, partition), producers)| {
        let open = producers.iter().filter(|producer| producer.open_from == Some(0));
        (topic.clone(), *partition, open.map(|producer| producer.producer_id).collect::<Vec<_>>())
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort();
    let mut expected = vec![
        (first.clone(), 0, vec![one]),
        (first.clone(), 1, vec![]),
        (first, 2, vec![one]),
        (second, 0, vec![other]),
    ];
    expected.sort();
    assert_eq!(ids, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_topic_and_partition_are_named() {
    let bootstrap = shared();
    let (topic, never) = (topic(&bootstrap, 1).await, unique_name("never"));
    let client = client(&bootstrap);
    let error = client.describe_producers(&never, 0, PATIENCE).await.expect_err("no topic");
    assert_eq!(error.code(), Some(ErrorCode(3)));
    assert!(error.to_string().contains(&never), "{error}");
    let error = client.describe_producers(&topic, 1, PATIENCE).await.expect_err("no partition");
    assert!(matches!(error, ProtocolError::UnknownPartition { partition: 1, .. }), "{error:?}");
    let error = client.cluster(&[&never], PATIENCE).await.expect_err("no topic");
    assert_eq!(error.code(), Some(ErrorCode(3)));
    assert!(client.cluster(&[], PATIENCE).await.expect("the cluster").topics.is_empty(), "none was created");
}

/// [KSK-21] the marker of a transaction is read when it is decided, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_in_a_transaction_are_read_when_it_is_committed_and_not_before() {
    let (bootstrap, id, group) = (shared(), unique_name("tx"), unique_name("progress"));
    let topic = topic(&bootstrap, 2).await;
    let client = client(&bootstrap);
    let asked = BTreeMap::from([(topic.clone(), [0, 1].into())]);
    assert!(client.stable_offsets(&group, &asked, PATIENCE).await.expect("asked").is_empty());

    let producer = writer(&bootstrap, &id, LONG);
    write(&producer, &topic, &[(0, "a")]);
    let of_group: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &bootstrap)
        .set("group.id", &group)
        .create()
        .expect("a consumer");
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&topic, 1, Offset::Offset(17)).expect("an offset");
    offsets.find_partition(&topic, 1).expect("there").set_metadata("attempt 3");
    let member = of_group.group_metadata().expect("a group");
    producer.send_offsets_to_transaction(&offsets, &member, PATIENCE).expect("offsets");

    let short = std::time::Duration::from_secs(3);
    let pending = client.stable_offsets(&group, &asked, short).await.expect_err("may be either");
    assert_eq!(pending.code(), Some(ErrorCode::UNSTABLE_OFFSET_COMMIT), "{pending:?}");
    assert!(matches!(pending, ProtocolError::Deadline { .. }));
    let open = described(&client, &id).await.expect("known").identity;
    client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect("commit");
    let told = client.stable_offsets(&group, &asked, PATIENCE).await.expect("decided");
    let expected = Committed { offset: 17, metadata: "attempt 3".to_owned() };
    assert_eq!(told, BTreeMap::from([((topic, 1), expected)]));
    assert_eq!(client.find_group_coordinator(&group, PATIENCE).await.expect("found"), 1);
}

/// [KSK-21] the limit that a time-out of ours must keep to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_of_the_brokers_is_told() {
    let kafka = Kafka::builder().property("transaction.max.timeout.ms", "120000").start().expect("a broker");
    let client = client(kafka.bootstrap());
    let told =
        client.broker_settings(&["transaction.max.timeout.ms", "no.such"], PATIENCE).await.expect("asked");
    let limit = ("transaction.max.timeout.ms".to_owned(), Some("120000".to_owned()));
    assert_eq!(told, BTreeMap::from([(1, BTreeMap::from([limit]))]));
    let id = unique_name("tx");
    let above = std::time::Duration::from_millis(120_001);
    let error = client.fence(&id, above, PATIENCE).await.expect_err("above the limit");
    assert_eq!(error.code(), Some(ErrorCode::INVALID_TRANSACTION_TIMEOUT));
}

/// [KSK-21] ids and leaders, as Kafka's own tool prints them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_that_was_made_anew_has_another_id() {
    let bootstrap = shared();
    let name = topic(&bootstrap, 2).await;
    let client = client(&bootstrap);
    let first = client.cluster(&[&name], PATIENCE).await.expect("the cluster");
    assert!(!first.id.is_empty() && first.controller.is_some());
    assert_eq!(first.brokers.keys().copied().collect::<Vec<_>>(), [1]);
    let leaders: Vec<_> = first.topics[&name].partitions.values().map(|leader| leader.broker).collect();
    assert_eq!(leaders, [Some(1), Some(1)]);

    let describe = ["--bootstrap-server", &bootstrap, "--describe", "--topic", &name];
    let kafka = Kafka::shared().expect("a broker");
    let mut tool = kafka.tool("org.apache.kafka.tools.TopicCommand", describe).expect("the tool");
    let printed = String::from_utf8(tool.output().expect("output").stdout).expect("a text");
    let id = first.topics[&name].id;
    assert!(printed.contains(&format!("TopicId: {id}")), "{id} is not in {printed}");

    let admin = admin(&bootstrap);
    let deleted = admin.delete_topics(&[&name], &AdminOptions::new()).await.expect("delete");
    deleted.into_iter().for_each(|deleted| drop(deleted.expect("deleted")));
    make_topic(&bootstrap, &name, 1).await;
    let second = client.cluster(&[&name], PATIENCE).await.expect("the cluster");
    assert_ne!(second.topics[&name].id, id);
    assert_eq!(second.id, first.id);
}

/// [KSK-21] a real broker speaks all that is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_of_today_passes_the_check() {
    let bootstrap = shared();
    let client = client(&bootstrap);
    let cluster = client.check_brokers(PATIENCE).await.expect("all is spoken");
    assert_eq!(cluster.brokers.len(), 1);
    let (topic, id) = (topic(&bootstrap, 1).await, unique_name("tx"));
    leave_open(&bootstrap, &id, &topic, &[(0, "a")]);
    assert_eq!(client.find_coordinator(&id, PATIENCE).await.expect("found"), 1);
}
