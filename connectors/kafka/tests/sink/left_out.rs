//! Markers that a coordinator leaves out.

use std::time::{Duration, Instant};

use levada_core::batch::RawRecord;
use levada_core::template::TwoPhaseCommitSink;
use levada_core::{BatchBuilder, CheckpointId, ErrorClass, SinkError, SplitId, Timestamp};
use levada_kafka::protocol::{
    Ending, Identity, ProtocolClient, ProtocolConfig, State, TransactionAdmin as _, TransactionKey,
};
use levada_kafka::sink::producing::KafkaSinkConfig;
use levada_kafka::sink::recovery::{TransactionHandle, TransactionNaming};
use levada_testcontainers::{Broker, Kafka, Security};

use super::acl;
use super::support::{PATIENCE, Topic, chain, context, now};
use super::two_phase::{Driven, name};

fn client(address: &str) -> ProtocolClient {
    let config = ProtocolConfig::from_properties([("bootstrap.servers", address)]).expect("an address");
    ProtocolClient::new(config).expect("a client")
}

/// Pre-commits a transaction with a record for each of these keys, its key the value.
async fn prepare(driven: &mut Driven, sequence: u64, keys: &[&str]) -> TransactionHandle {
    let mut handle = driven.sink.begin(&name(sequence)).await.expect("begin");
    write(driven, &mut handle, keys).await.expect("write");
    driven.sink.pre_commit(&mut handle).await.expect("pre-commit");
    handle
}

async fn write(driven: &mut Driven, handle: &mut TransactionHandle, keys: &[&str]) -> Result<(), SinkError> {
    let mut batch = BatchBuilder::new();
    let split = batch.split(&SplitId::new("flights", 3));
    for (offset, key) in (0..).zip(keys) {
        let bytes = Some(key.as_bytes());
        batch.push(
            split,
            RawRecord { offset, timestamp: Timestamp(1), key: bytes, value: bytes, ..RawRecord::default() },
        );
    }
    driven.sink.write(handle, batch.finish().0, &now()).await
}

/// Finds a key for each partition, by a transaction for each key that is tried.
async fn key_of_each_partition(driven: &mut Driven, topic: &Topic) -> [&'static str; 3] {
    let mut found: [Option<&str>; 3] = [None; 3];
    for (sequence, key) in (1..).zip(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]) {
        let handle = prepare(driven, sequence, &[key]).await;
        driven.sink.commit(&handle).await.expect("commit");
        let partition = *handle.partitions[&topic.name].first().expect("one");
        found[usize::try_from(partition).expect("a partition")].get_or_insert(key);
        if let [Some(first), Some(second), Some(third)] = found {
            return [first, second, third];
        }
    }
    panic!("keys for all partitions, and not {found:?}");
}

/// Waits until a broker says that nobody leads partitions that another one led.
async fn until_nobody_leads_those_of(away: i32, asked: &ProtocolClient, topic: &str) {
    let started = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    loop {
        let told = asked.cluster(&[topic], PATIENCE).await.expect("told");
        let leaders: Vec<_> = told.topics[topic].partitions.values().map(|leader| leader.broker).collect();
        if leaders.contains(&None) && !leaders.contains(&Some(away)) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "nobody leads them in time: {leaders:?}");
        looks.tick().await;
    }
}

async fn identity_of(admin: &ProtocolClient, id: &str) -> Identity {
    admin.describe(&[id], PATIENCE).await.expect("told").remove(id).flatten().expect("known").identity
}

async fn until_state(admin: &ProtocolClient, id: &str, state: State) -> Identity {
    let started = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    loop {
        let told = admin.describe(&[id], PATIENCE).await.expect("told").remove(id).flatten().expect("known");
        if told.state == state {
            return told.identity;
        }
        assert!(started.elapsed() < PATIENCE, "{state:?} in time, and not {told:?}");
        looks.tick().await;
    }
}

/// A transaction that is committed, whose marker is left out in a partition: its only replica is away.
struct LeftOut {
    handle: TransactionHandle,
    away: i32,
    /// A key of a partition that is led.
    elsewhere: &'static str,
    keys: [&'static str; 3],
    /// As the coordinator tells it.
    identity: Identity,
}

impl LeftOut {
    /// Commits a transaction with a record in each partition of a topic that is spread, while one broker is away.
    async fn make(kafka: &Kafka, topic: &Topic, driven: &mut Driven) -> LeftOut {
        let keys = key_of_each_partition(driven, topic).await;
        let handle = prepare(driven, 100, &keys).await;
        let admin = client(kafka.bootstrap());
        let id = handle.transactional_id.as_str();
        let coordinator = admin.find_coordinator(id, PATIENCE).await.expect("found");
        let (away, elsewhere) = if coordinator == 3 { (2, keys[2]) } else { (3, keys[1]) };
        broker(kafka, away).kill();
        // What the coordinator believes is what counts.
        let asked = client(&broker(kafka, coordinator).address());
        until_nobody_leads_those_of(away, &asked, &topic.name).await;
        driven.sink.commit(&handle).await.expect("commit");
        let identity = until_state(&admin, id, State::CompleteCommit).await;
        assert_eq!(markers_written(driven), 0, "nobody could write it");
        LeftOut { handle, away, elsewhere, keys, identity }
    }
}

fn broker(kafka: &Kafka, id: i32) -> &Broker {
    kafka.broker(usize::try_from(id).expect("a broker"))
}

fn markers_written(driven: &Driven) -> u64 {
    driven.metrics.snapshot(Timestamp(0)).markers_written
}

/// [KSK-09] [KSK-10] [KSK-26] the only replica of a partition is away when its transaction is committed: the coordinator calls the
/// commit complete, and leaves its marker out. The sink writes it when the replica is back, readers see every record, and
/// the id is not used again before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_that_the_coordinator_has_left_out_is_written_when_the_partition_is_led_again() {
    let kafka = Kafka::builder().brokers(3).start().expect("three brokers");
    let topic = Topic::spread(kafka.bootstrap()).await;
    let mut driven = Driven::open(&topic, topic.config().topics([&topic.name])).await;
    let LeftOut { handle, away, elsewhere, keys, identity } =
        LeftOut::make(&kafka, &topic, &mut driven).await;
    let before = driven.metrics.snapshot(Timestamp(0)).committed as usize - 1;
    let (admin, id) = (client(kafka.bootstrap()), handle.transactional_id.as_str());
    // The next checkpoint is complete: no start will ask for the transaction any more.
    for sequence in [101, 102] {
        let next = prepare(&mut driven, sequence, &[elsewhere]).await;
        driven.sink.commit(&next).await.expect("commit");
    }
    assert_eq!(until_state(&admin, id, State::CompleteCommit).await, identity, "the id is not used again");

    broker(&kafka, away).restart().expect("it comes back");
    let read = topic.texts_once_there_are(before + keys.len() + 2);
    let seen = keys.map(|key| read.iter().filter(|text| *text == key).count());
    // Once when the key was tried, once in it, and two behind it.
    let expected = keys.map(|key| if key == elsewhere { 4 } else { 2 });
    assert_eq!((seen, read.len()), (expected, before + keys.len() + 2), "{read:?}");
    // It is seen, so the id is used again.
    for sequence in 103.. {
        let next = prepare(&mut driven, sequence, &[elsewhere]).await;
        driven.sink.commit(&next).await.expect("commit");
        if identity_of(&admin, id).await.epoch > identity.epoch {
            break;
        }
        assert!(sequence < 10_000, "it is seen in time");
    }
    assert_eq!(markers_written(&driven), 1);
    driven.sink.close().await;
}

/// [KSK-15] the offset that tells of a transaction whose id is forgotten has a marker of its own: it is written, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_of_the_offset_in_a_transaction_is_written_when_its_partition_is_led_again() {
    // Enough partitions that the names of the next topic lead to other ones.
    let builder = Kafka::builder().brokers(3).property("offsets.topic.replication.factor", "1");
    let kafka = builder.property("offsets.topic.num.partitions", "16").start().expect("three brokers");
    let admin = client(kafka.bootstrap());
    let mut tries = 0..12;
    let (topic, mut driven, handle, group, coordinator, away) = loop {
        tries.next().expect("a group that another broker coordinates than its transaction");
        let topic = Topic::replicated(kafka.bootstrap()).await;
        let mut driven = Driven::open(&topic, topic.config().topics([&topic.name])).await;
        let handle = prepare(&mut driven, 1, &["a"]).await;
        let id = handle.transactional_id.as_str();
        let group = TransactionNaming::marker_group(id);
        let coordinator = admin.find_coordinator(id, PATIENCE).await.expect("found");
        let of_group = admin.find_group_coordinator(&group, PATIENCE).await.expect("found");
        if of_group != coordinator {
            break (topic, driven, handle, group, coordinator, of_group);
        }
        driven.sink.commit(&handle).await.expect("commit");
        driven.sink.close().await;
    };
    broker(&kafka, away).kill();
    let asked = client(&broker(&kafka, coordinator).address());
    until_nobody_leads_those_of(away, &asked, "__consumer_offsets").await;
    driven.sink.commit(&handle).await.expect("commit");
    until_state(&asked, &handle.transactional_id, State::CompleteCommit).await;
    assert_eq!(markers_written(&driven), 0, "nobody could write it");

    broker(&kafka, away).restart().expect("it comes back");
    let place = [(topic.name.clone(), [0].into())].into();
    let stable = admin.stable_offsets(&group, &place, PATIENCE).await.expect("decided");
    assert_eq!(stable[&(topic.name.clone(), 0)].offset, 1);
    // Closing waits for the look behind it.
    driven.sink.close().await;
    assert_eq!(markers_written(&driven), 1);
}

/// [KSK-04] [KSK-09] the leader is away for longer than one look takes, and nobody writes: it is looked behind again and again, and
/// the next call does not fail by what is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_is_written_long_after_though_nobody_writes() {
    let kafka = Kafka::builder().brokers(3).start().expect("three brokers");
    let topic = Topic::spread(kafka.bootstrap()).await;
    let config = topic.config().topics([&topic.name]);
    // Coordinators of a new cluster take longer than that for their first answers.
    Driven::open(&topic, config.clone()).await.until_warm(3).await;
    let mut driven = Driven::resolving_within(&topic, config, Duration::from_secs(2)).await;
    let left_out = LeftOut::make(&kafka, &topic, &mut driven).await;
    let committed = driven.metrics.snapshot(Timestamp(0)).committed as usize;
    let unseen = |count: u64| {
        let metrics = driven.metrics.clone();
        until(move || metrics.snapshot(Timestamp(0)).unseen == count)
    };
    unseen(1).await;
    broker(&kafka, left_out.away).restart().expect("it comes back");
    unseen(0).await;
    assert_eq!(markers_written(&driven), 1);
    let all = committed - 1 + left_out.keys.len();
    assert_eq!(topic.texts_once_there_are(all).len(), all);
    let next = prepare(&mut driven, 101, &[left_out.elsewhere]).await;
    driven.sink.commit(&next).await.expect("commit");
    driven.sink.close().await;
}

/// [KSK-27] what a run did not see is seen by the next one in the process, and counts no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_the_next_run_sees_is_not_unseen_any_more() {
    let kafka = Kafka::builder().brokers(3).start().expect("three brokers");
    let topic = Topic::spread(kafka.bootstrap()).await;
    let config = topic.config().topics([&topic.name]);
    Driven::open(&topic, config.clone()).await.until_warm(3).await;
    let mut driven = Driven::resolving_within(&topic, config.clone(), Duration::from_secs(2)).await;
    let left_out = LeftOut::make(&kafka, &topic, &mut driven).await;
    let metrics = driven.metrics.clone();
    let unseen = || metrics.snapshot(Timestamp(0)).unseen;
    until(|| unseen() == 1).await;
    driven.sink.close().await;
    broker(&kafka, left_out.away).restart().expect("it comes back");
    assert_eq!(unseen(), 1, "nobody has looked");
    let next = Driven::new(&topic, config);
    let mut sink = next.sink.metrics(metrics.clone());
    sink.open(context()).await.expect("open");
    sink.fence(CheckpointId { attempt: 8, sequence: 1 }, &[]).await.expect("fence");
    assert_eq!(unseen(), 0);
}

/// [KSK-09] [KSK-17] a commit that is decided, and whose markers are on their way, is not initialised away by a start: one of its
/// markers may yet be left out, and then the start writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_is_on_its_way_is_looked_behind_and_not_fenced() {
    let kafka = Kafka::builder().brokers(3).start().expect("three brokers");
    let topic = Topic::spread(kafka.bootstrap()).await;
    let config = topic.config().topics([&topic.name]);
    let mut crashed = Driven::open(&topic, config.clone()).await;
    let keys = key_of_each_partition(&mut crashed, &topic).await;
    let tried = crashed.metrics.snapshot(Timestamp(0)).committed as usize;
    let handle = prepare(&mut crashed, 100, &keys).await;
    let (admin, id) = (client(kafka.bootstrap()), handle.transactional_id.as_str());
    let coordinator = admin.find_coordinator(id, PATIENCE).await.expect("found");
    let away = broker(&kafka, if coordinator == 3 { 2 } else { 3 });
    // One is told no topic, so it looks behind nothing.
    let mut fencing = Driven::open(&topic, topic.config()).await;
    let mut looking = Driven::open(&topic, config).await;
    away.pause().expect("it stops");
    let key = TransactionKey { transactional_id: id, producer_id: handle.producer_id, epoch: handle.epoch };
    admin.end(key, Ending::Commit, PATIENCE).await.expect("decided");
    let identity = until_state(&admin, id, State::PrepareCommit).await;
    drop(crashed);

    let first = CheckpointId { attempt: 8, sequence: 1 };
    let looking = tokio::spawn(async move { looking.sink.fence(first, &[]).await });
    fencing.sink.fence(first, &[]).await.expect("fence");
    assert_eq!(identity_of(&admin, id).await, identity, "not initialised");
    away.kill();
    until_state(&admin, id, State::CompleteCommit).await;
    away.restart().expect("it comes back");
    looking.await.expect("no panic").expect("it is seen");
    assert_eq!(topic.texts_once_there_are(tried + 3).len(), tried + 3);
    assert_eq!(identity_of(&admin, id).await, identity, "not initialised");
}

async fn until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "in time");
        looks.tick().await;
    }
}

/// [KSK-04] [KSK-09] where the marker may not be written, the sink fails at one of its next calls, and says so; a new run of it
/// in the same process does so before it fences anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marker_that_may_not_be_written_fails_the_next_call_and_the_next_start() {
    let kafka = acl::authorizing(Kafka::builder().brokers(3).secured())
        .property("super.users", "User:ANONYMOUS")
        .start()
        .expect("three brokers");
    let topic = Topic::spread(kafka.bootstrap()).await;
    let properties = kafka.client_properties(Security::Tls).expect("TLS");
    let (addresses, others): (Vec<_>, Vec<_>) =
        properties.into_iter().partition(|(name, _)| name == "bootstrap.servers");
    // No topic is named: what is known of it is the handle.
    let config = KafkaSinkConfig::new(&addresses[0].1).properties(others.into_iter().collect());
    let mut driven = Driven::open(&topic, config.clone()).await;
    acl::reserve_cluster(&kafka).await;
    let left_out = LeftOut::make(&kafka, &topic, &mut driven).await;
    broker(&kafka, left_out.away).restart().expect("it comes back");
    let failed = fails(&mut driven, left_out.elsewhere).await;
    says_what_to_do(&failed, &left_out, &topic);
    driven.sink.close().await;

    let mut again = Driven::new(&topic, config);
    again.sink.open(context()).await.expect("open");
    let next_attempt = CheckpointId { attempt: 8, sequence: 1 };
    let failed = again.sink.fence(next_attempt, &[]).await.expect_err("it is not seen");
    says_what_to_do(&failed, &left_out, &topic);
}

/// Writes transactions until a call fails.
async fn fails(driven: &mut Driven, key: &str) -> SinkError {
    for sequence in 101..10_000 {
        let mut handle = match driven.sink.begin(&name(sequence)).await {
            Ok(handle) => handle,
            Err(failed) => return failed,
        };
        let written = write(driven, &mut handle, &[key]).await;
        if let Err(failed) = written {
            return failed;
        }
        if let Err(failed) = driven.sink.pre_commit(&mut handle).await {
            return failed;
        }
        driven.sink.commit(&handle).await.expect("commit");
    }
    panic!("it fails in time");
}

fn says_what_to_do(failed: &SinkError, left_out: &LeftOut, topic: &Topic) {
    assert_eq!(failed.class, ErrorClass::Reconnect, "the right may be granted");
    let said = chain(failed);
    let place = format!("{}[{}], from offset", topic.name, left_out.away - 1);
    let id = left_out.handle.transactional_id.as_str();
    for part in
        [id, &place, "Do NOT abort it", "Grant ALTER on the cluster", "CLUSTER_AUTHORIZATION_FAILED (31)"]
    {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}
