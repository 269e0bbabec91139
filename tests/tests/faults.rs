//! The whole path under one fault at a time, and what the fault does to a bridge whose protection is switched off.
#![cfg(feature = "failpoints")]

use levada_testcontainers::oracle::exactly_once;
use levada_testcontainers::{Action, Cut, Direction, Kafka, Postgres, Trigger, wait_until};
use levada_tests::bridge::{Bridge, BridgeCommand, PATIENCE};
use levada_tests::topic::Topic;
use nix::sys::signal::Signal;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");

/// A topic of two partitions and an insert-only table without a key, where every record that is written twice shows.
struct Scene<'a> {
    topic: Topic,
    brokers: String,
    url: String,
    /// Read past whatever stands in front of it.
    postgres: &'a Postgres,
}

impl<'a> Scene<'a> {
    fn new(brokers: &str, topic: Topic, url: &str, postgres: &'a Postgres) -> Self {
        postgres.psql("CREATE TABLE numbers (n int)").expect("a table");
        Self { topic, brokers: brokers.to_owned(), url: url.to_owned(), postgres }
    }

    fn start(&self, fail_points: &str) -> Bridge {
        let pipeline = format!(
            "name: numbers\nsource:\n  kafka: {{brokers: '{}', topics: {}, format: json}}\n\
             sink:\n  postgres: {{url: '{}', table: numbers, mode: insert}}\n\
             commit: {{rows: 1000, age: 20ms}}\n",
            self.brokers, self.topic.name, self.url,
        );
        BridgeCommand::new(LEVADA, &pipeline).env("FAILPOINTS", fail_points).start()
    }

    fn send(&self, numbers: std::ops::Range<u32>) {
        for n in numbers {
            self.topic.send(Some((n % 2) as i32), None, Some(&format!("{{\"n\":{n}}}")));
        }
        self.topic.flush();
    }

    fn written(&self) -> Vec<u32> {
        let rows = self.postgres.psql("SELECT n FROM numbers").expect("rows");
        rows.lines().map(|line| line.parse().expect("a number")).collect()
    }

    fn wait_for_rows(&self, count: usize, bridge: &mut Bridge) {
        let rows = "SELECT count(*) FROM numbers";
        let arrived = wait_until(PATIENCE, "the rows", || {
            self.postgres.psql(rows).is_ok_and(|found| found.parse() == Ok(count)) || bridge.has_ended()
        });
        assert!(
            arrived.is_ok() && !bridge.has_ended(),
            "{count} rows were expected; the bridge's log:\n{}",
            bridge.log()
        );
    }
}

/// What is in the table after the answer to one COMMIT was lost.
fn written_after_a_lost_answer(fail_points: &str) -> Vec<u32> {
    let kafka = Kafka::shared().expect("Kafka");
    let postgres = Postgres::start().expect("Postgres");
    let line = Cut::to(postgres.url()).expect("a proxy");
    let topic = Topic::create(kafka.bootstrap(), 2);
    let scene = Scene::new(kafka.bootstrap(), topic, &line.url(postgres.url()), &postgres);
    let mut bridge = scene.start(fail_points);
    scene.send(0..10);
    scene.wait_for_rows(10, &mut bridge);
    let lost = line.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
    scene.send(10..11);
    lost.wait(PATIENCE).expect("a commit");
    bridge.wait_for_log("connected again");
    // Whatever becomes of it, it is over when the next record is there.
    scene.send(11..12);
    wait_until(PATIENCE, "the last record", || scene.written().contains(&11)).expect("it is written");
    bridge.signal(Signal::SIGTERM);
    bridge.finish().expect_code(0);
    scene.written()
}

/// [PGS-02] [PGS-03] [TST-04] a cut after COMMIT went out.
#[test]
fn a_lost_answer_to_a_commit_neither_doubles_nor_loses() {
    exactly_once(0..12, written_after_a_lost_answer("")).unwrap();
}

/// The same with a blind retry: what the look at the position protects from.
#[test]
fn with_a_blind_retry_a_lost_answer_doubles_a_row() {
    let blind = "pg::commit::blind_retry=return;pg::commit::without_compare_and_set=return";
    let verdict = exactly_once(0..12, written_after_a_lost_answer(blind)).unwrap_err();
    assert_eq!(verdict.doubled().len(), 1, "{verdict}");
    assert!(verdict.missing().is_empty(), "{verdict}");
}

/// [PGS-18] [TST-04] a full disk is an outage: nothing is lost, nothing is refused, and it goes on by itself.
#[test]
fn a_full_disk_is_waited_out() {
    let kafka = Kafka::shared().expect("Kafka");
    let postgres = Postgres::builder().disk(96 << 20).start().expect("Postgres");
    let topic = Topic::create(kafka.bootstrap(), 2);
    let scene = Scene::new(kafka.bootstrap(), topic, postgres.url(), &postgres);
    let mut bridge = scene.start("");
    scene.send(0..10);
    scene.wait_for_rows(10, &mut bridge);
    postgres.fill_disk().expect("the disk is full");
    scene.send(10..50_000);
    bridge.wait_for_log("degraded");
    postgres.free_disk().expect("the disk has room again");
    // A server that found no room for its own log has ended itself.
    if postgres.psql("SELECT 1").is_err() {
        postgres.restart().expect("Postgres starts");
    }
    scene.wait_for_rows(50_000, &mut bridge);
    exactly_once(0..50_000, scene.written()).unwrap();
}

/// [SRC-11] [PGS-03] [TST-04] one broker of three is killed, and comes back: its partitions move twice.
#[test]
fn the_loss_of_one_broker_neither_doubles_nor_loses() {
    let kafka = Kafka::builder().brokers(3).start().expect("Kafka");
    let postgres = Postgres::start().expect("Postgres");
    let topic = Topic::create(kafka.bootstrap(), 2);
    let scene = Scene::new(kafka.bootstrap(), topic, postgres.url(), &postgres);
    let mut bridge = scene.start("");
    for (round, broker) in kafka.brokers().iter().enumerate() {
        let first = round as u32 * 2000;
        scene.send(first..first + 1000);
        broker.kill();
        scene.send(first + 1000..first + 2000);
        scene.wait_for_rows(first as usize + 2000, &mut bridge);
        broker.restart().expect("the broker comes back");
    }
    exactly_once(0..6000, scene.written()).unwrap();
}

/// [PGS-03] [TST-04] a standby takes over at the same address.
#[test]
fn a_failover_neither_doubles_nor_loses() {
    let kafka = Kafka::shared().expect("Kafka");
    let primary = Postgres::start().expect("Postgres");
    let topic = Topic::create(kafka.bootstrap(), 2);
    let line = Cut::to(primary.url()).expect("a proxy");
    let mut scene = Scene::new(kafka.bootstrap(), topic, &line.url(primary.url()), &primary);
    let standby = primary.synchronous_standby().expect("a standby");
    let mut bridge = scene.start("");
    scene.send(0..2000);
    scene.wait_for_rows(2000, &mut bridge);
    primary.kill();
    scene.send(2000..4000);
    standby.promote().expect("the standby takes over");
    line.connect_to(standby.url()).expect("the proxy is redirected");
    scene.postgres = &standby;
    scene.wait_for_rows(4000, &mut bridge);
    exactly_once(0..4000, scene.written()).unwrap();
}
