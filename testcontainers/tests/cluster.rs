//! Three brokers, of which one may go.

mod clients;

use std::time::Duration;

use clients::kafka::{PATIENCE, acknowledged, at, config, consumed, create_topic, with};
use levada_testcontainers::{Action, Direction, Error, Kafka, Trigger, wait_until};
use rdkafka::consumer::{BaseConsumer, Consumer};

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// The leader of a topic's partition and its in-sync replicas.
fn state_of(kafka: &Kafka, topic: &str) -> (i32, Vec<i32>) {
    let consumer: BaseConsumer = config(&at(kafka.bootstrap())).create().unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let partition = &metadata.topics()[0].partitions()[0];
    let mut in_sync = partition.isr().to_vec();
    in_sync.sort_unstable();
    (partition.leader(), in_sync)
}

/// [TST-01] [TST-04] One broker of three is killed, and comes back.
#[test]
fn a_cluster_serves_on_without_one_of_its_brokers() {
    let kafka = Kafka::builder().brokers(3).start().unwrap();
    let properties = at(kafka.bootstrap());
    create_topic(&properties, "led-by-1", &[1, 2, 3], &[]);
    assert_eq!(state_of(&kafka, "led-by-1").0, 1);
    assert_eq!(acknowledged(&properties, "led-by-1", numbers(0..10), PATIENCE).len(), 10);

    kafka.broker(1).kill();
    assert_eq!(kafka.broker(1).pid(), None);
    assert!(kafka.broker(2).pid().is_some() && kafka.broker(3).pid().is_some());
    assert_eq!(acknowledged(&properties, "led-by-1", numbers(10..20), PATIENCE).len(), 10);
    let (leader, in_sync) = state_of(&kafka, "led-by-1");
    assert_ne!(leader, 1);
    assert_eq!(in_sync, [2, 3]);

    kafka.broker(1).restart().unwrap();
    wait_until(PATIENCE, "the broker to be in sync", || state_of(&kafka, "led-by-1").1 == [1, 2, 3]).unwrap();
    assert_eq!(consumed(&properties, "led-by-1"), numbers(0..20));
}

/// [TST-04] That the loss of one broker bites: what its leader alone had acknowledged is gone, what all had is not.
#[test]
fn what_one_broker_acknowledged_alone_is_lost_with_it() {
    let kafka = Kafka::builder().brokers(3).start().unwrap();
    let properties = at(kafka.bootstrap());
    let (by_one, by_all) = (with(properties.clone(), "acks", "1"), with(properties.clone(), "acks", "all"));
    for topic in ["by-one", "by-all"] {
        create_topic(&properties, topic, &[1, 2, 3], &[]);
        assert_eq!(acknowledged(&by_all, topic, numbers(0..1), PATIENCE).len(), 1);
    }
    // The followers stand still: what comes now is on the leader only.
    for follower in [2, 3] {
        kafka.broker(follower).pause().unwrap();
    }
    let short = Duration::from_secs(3);
    let from_leader = |properties| with(properties, "bootstrap.servers", &kafka.broker(1).address());
    let by_one = from_leader(by_one);
    // This one may answer the requests that the followers had sent: they would find it in their sockets.
    assert_eq!(acknowledged(&by_one, "by-one", numbers(1..2), PATIENCE).len(), 1);
    let alone = acknowledged(&by_one, "by-one", numbers(2..10), PATIENCE);
    assert_eq!(alone.len(), 8, "the leader acknowledges them alone");
    let together = acknowledged(&from_leader(by_all), "by-all", numbers(1..10), short);
    assert!(together.is_empty(), "nobody else had them, yet they were acknowledged: {together:?}");

    kafka.broker(1).kill();
    for follower in [2, 3] {
        kafka.broker(follower).resume().unwrap();
    }
    let left = consumed(&properties, "by-one");
    assert!(left == numbers(0..1) || left == numbers(0..2), "eight acknowledged records are lost: {left:?}");
    assert_eq!(consumed(&properties, "by-all"), numbers(0..1), "nothing acknowledged is lost");
}

/// [TST-01]
#[test]
fn a_cluster_of_two_is_refused() {
    let error = Kafka::builder().brokers(2).start().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
}

/// [TST-04] Kafka behind a proxy: clients are told the proxy's address, so that all they say goes through it.
#[test]
fn clients_of_a_broker_behind_a_cut_are_cut() {
    let kafka = Kafka::builder().behind_cut().start().unwrap();
    let cut = kafka.broker(1).cut().unwrap();
    let behind = at(&kafka.bootstrap_behind_cut().unwrap());
    create_topic(&behind, "cut", &[1], &[]);
    assert_eq!(acknowledged(&behind, "cut", numbers(0..10), PATIENCE).len(), 10);
    assert_eq!(consumed(&behind, "cut"), numbers(0..10));

    cut.hold();
    let short = Duration::from_secs(2);
    assert!(acknowledged(&behind, "cut", ["held".to_owned()], short).is_empty(), "it passed a held proxy");
    assert_eq!(acknowledged(&at(kafka.bootstrap()), "cut", ["past it".to_owned()], PATIENCE), ["past it"]);
    cut.heal();
    assert!(matches!(Kafka::start().unwrap().broker(1).cut(), Err(Error::Refused { .. })));
}

/// [TST-04] That a cut bites: a producer whose answer is lost sends again. With idempotence the broker tells the second
/// time from the first, without it the record is doubled.
#[test]
fn a_lost_answer_doubles_a_record_unless_the_producer_is_idempotent() {
    let kafka = Kafka::builder().behind_cut().start().unwrap();
    let cut = kafka.broker(1).cut().unwrap();
    let behind = at(&kafka.bootstrap_behind_cut().unwrap());
    for (topic, is_idempotent, expected) in [("idempotent", "true", 1), ("blind", "false", 2)] {
        create_topic(&behind, topic, &[1], &[]);
        let producer = with(behind.clone(), "enable.idempotence", is_idempotent);
        // The answer to the request that carries the record is the next that names the topic.
        let record = format!("the record of {topic}");
        let sent = cut.when(Direction::ToServer, Trigger::after(record.clone()), Action::Hold);
        let acknowledged = std::thread::scope(|scope| {
            let producing = scope.spawn(|| acknowledged(&producer, topic, [record.clone()], PATIENCE));
            sent.wait(PATIENCE).unwrap();
            let answered = cut.when(Direction::ToClient, Trigger::before(topic), Action::Cut);
            cut.release();
            answered.wait(PATIENCE).unwrap();
            producing.join().unwrap()
        });
        assert_eq!(acknowledged, [record.as_str()]);
        assert_eq!(consumed(&at(kafka.bootstrap()), topic).len(), expected, "{topic}");
    }
}
