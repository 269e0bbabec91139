//! Two processes of one pipeline: one of them writes, and never both.
#![cfg(feature = "failpoints")]

use std::time::{Duration, Instant};

use levada_testcontainers::{Database, Kafka, Postgres, SharedKafka, wait_until};
use levada_tests::bridge::{Bridge, BridgeCommand, PATIENCE};
use levada_tests::topic::Topic;
use nix::sys::signal::Signal;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");

/// An insert-only table without a key, where every record that is written twice shows.
struct Setting {
    kafka: SharedKafka,
    topic: Topic,
    database: Database,
}

impl Setting {
    fn new() -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        let topic = Topic::create(kafka.bootstrap(), 2);
        let database = Postgres::database().expect("a database");
        database.psql("CREATE TABLE t (n int)").expect("a table");
        Self { kafka, topic, database }
    }

    fn command(&self) -> BridgeCommand {
        self.command_with("")
    }

    fn command_with(&self, rest: &str) -> BridgeCommand {
        self.command_from("earliest", rest)
    }

    fn command_from(&self, start: &str, rest: &str) -> BridgeCommand {
        let pipeline = format!(
            "{rest}name: test\nsource:\n  kafka: {{brokers: '{}', topics: {}, format: json, start: {start}}}\n\
             sink:\n  postgres: {{url: '{}', table: t, mode: insert}}\n",
            self.kafka.bootstrap(),
            self.topic.name,
            self.database.url(),
        );
        BridgeCommand::new(LEVADA, &pipeline)
    }

    fn send(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.topic.send(Some((number % 2) as i32), None, Some(&format!("{{\"n\":{number}}}")));
        }
        self.topic.flush();
    }

    fn rows(&self) -> String {
        self.database.psql("SELECT count(*), count(DISTINCT n) FROM t").expect("SQL").trim().to_owned()
    }

    fn wait_for_rows(&self, rows: &str) {
        let arrived = wait_until(PATIENCE, "the rows", || self.rows() == rows);
        assert!(arrived.is_ok(), "expected {rows}, found {}", self.rows());
    }
}

fn expect_fenced_by(first: Bridge, second: &Bridge) {
    let finished = first.finish().expect_code(5);
    let other = format!("/{} since ", second.pid());
    assert!(finished.log.contains(&other), "the first names the second, {other:?}:\n{}", finished.log);
}

/// [TPL-22] the second process takes over, the first ends and names it; no record is lost or doubled.
#[test]
fn second_process_takes_over_and_the_first_names_it() {
    let setting = Setting::new();
    setting.send(0..1000);
    let first = setting.command().start();
    setting.wait_for_rows("1000|1000");
    let mut second = setting.command().start();
    second.wait_for_log("claimed");
    // The first finds out at its next commit.
    setting.send(1000..2000);
    expect_fenced_by(first, &second);
    setting.wait_for_rows("2000|2000");
    second.signal(Signal::SIGTERM);
    second.finish().expect_code(0);
    assert_eq!(setting.rows(), "2000|2000");
}

/// [SRC-13] [TPL-22] "latest" is found out by the first process, once for all its partitions. It is stopped, or killed, before it
/// has read anything; records come; the process that takes over reads all of them, and nothing of what was there before.
#[test]
fn whoever_takes_over_starts_where_the_first_process_found_latest_to_be() {
    for is_killed in [false, true] {
        let setting = Setting::new();
        setting.send(0..100);
        let mut first = setting.command_from("latest", "").start();
        first.wait_for_log("claimed");
        match is_killed {
            true => first.kill(),
            false => {
                first.signal(Signal::SIGSTOP);
                first.wait_until_stopped();
            }
        }
        setting.send(100..300);
        let mut second = setting.command_from("latest", "").start();
        second.wait_for_log("claimed");
        setting.wait_for_rows("200|200");
        if !is_killed {
            // It goes on from the same start, and finds out at its first commit.
            first.signal(Signal::SIGCONT);
            expect_fenced_by(first, &second);
        }
        setting.send(300..400);
        setting.wait_for_rows("300|300");
        assert_eq!(setting.database.psql("SELECT min(n), max(n) FROM t").expect("SQL").trim(), "100|399");
        second.signal(Signal::SIGTERM);
        second.finish().expect_code(0);
        assert_eq!(setting.rows(), "300|300");
    }
}

/// [TPL-22] three processes of two subtasks each, started in the same moment: one goes on, and the others name it.
#[test]
fn of_processes_that_start_together_one_goes_on() {
    let setting = Setting::new();
    let mut processes: Vec<Bridge> =
        (0..3).map(|_| setting.command_with("parallelism: 2\n").start()).collect();
    let mut sent = 0;
    // Whoever lost finds out at his next commit, so records flow until two have.
    let two_are_gone = wait_until(PATIENCE, "two processes to end", || {
        setting.send(sent..sent + 100);
        sent += 100;
        processes.iter_mut().filter_map(|process| process.has_ended().then_some(())).count() >= 2
    });
    assert!(two_are_gone.is_ok(), "one process goes on and two end");
    setting.wait_for_rows(&format!("{sent}|{sent}"));
    let (ended, mut running): (Vec<_>, Vec<_>) = processes
        .into_iter()
        .map(|mut process| (process.has_ended(), process))
        .partition(|(ended, _)| *ended);
    let (_, winner) = running.pop().expect("one process goes on");
    for (_, loser) in ended {
        expect_fenced_by(loser, &winner);
    }
    winner.signal(Signal::SIGTERM);
    winner.finish().expect_code(0);
    assert_eq!(setting.rows(), format!("{sent}|{sent}"));
}

/// [PGS-44] SIGSTOP after the position update: takeover within 15 s; after SIGCONT the old COMMIT fails, and it ends.
#[test]
fn owner_stopped_inside_its_transaction_cannot_block_a_takeover() {
    let setting = Setting::new();
    let mut first = setting.command().env("LEVADA_STOP_AT", "pg::commit::after_positions:2").start();
    setting.send(0..1000);
    setting.wait_for_rows("1000|1000");
    setting.send(1000..2000);
    first.wait_until_stopped();
    assert_eq!(setting.rows(), "1000|1000", "the first stands inside its second transaction");

    let started = Instant::now();
    let mut second = setting.command().start();
    second.wait_for_log("claimed");
    setting.wait_for_rows("2000|2000");
    assert!(started.elapsed() < Duration::from_secs(15), "the takeover took {:?}", started.elapsed());

    first.signal(Signal::SIGCONT);
    expect_fenced_by(first, &second);
    second.signal(Signal::SIGTERM);
    second.finish().expect_code(0);
    assert_eq!(setting.rows(), "2000|2000");
}

/// Stops the first process before its transaction, lets a second take over, and wakes the first.
fn stopped_before_its_transaction(fail_points: &str) -> (Setting, Bridge, Bridge) {
    let setting = Setting::new();
    let mut first = setting
        .command()
        .env("LEVADA_STOP_AT", "pg::commit::before_begin:2")
        .env("FAILPOINTS", fail_points)
        .start();
    setting.send(0..1000);
    setting.wait_for_rows("1000|1000");
    setting.send(1000..2000);
    first.wait_until_stopped();

    let second = setting.command().start();
    setting.wait_for_rows("2000|2000");
    first.signal(Signal::SIGCONT);
    (setting, first, second)
}

/// [PGS-01] [PGS-02] [TPL-17] the compare-and-set refuses the late flush in the server.
#[test]
fn owner_that_wakes_after_a_takeover_is_refused() {
    let (setting, first, second) = stopped_before_its_transaction("");
    expect_fenced_by(first, &second);
    assert_eq!(setting.rows(), "2000|2000");
}

/// The same with the compare-and-set switched off: what it protects from.
#[test]
fn without_the_compare_and_set_rows_double() {
    let (setting, mut first, second) =
        stopped_before_its_transaction("pg::commit::without_compare_and_set=return");
    let is_doubled = || setting.rows() == "3000|2000";
    let doubled = wait_until(PATIENCE, "doubled rows", || is_doubled() || first.has_ended());
    assert!(
        doubled.is_ok() && is_doubled(),
        "rows: {}\nfirst:\n{}\nsecond:\n{}",
        setting.rows(),
        first.log(),
        second.log()
    );
}
