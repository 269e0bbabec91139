//! Logs are kept and shown for a failing test, and only then.

mod observe;

use std::process::{Command, Output};

use levada_testcontainers::{Kafka, Postgres};
use observe::{child_test, printed};

const KAFKA_LINE: &str = "Kafka Server started";
const POSTGRES_LINE: &str = "database system is ready to accept connections";

/// Not tests: what the tests below run in a process of its own.
#[test]
#[ignore = "run as a child process by the other tests"]
fn fails_with_servers_of_its_own() {
    let _servers = (Kafka::start().unwrap(), Postgres::start().unwrap());
    panic!("on purpose");
}

#[test]
#[ignore = "run as a child process by the other tests"]
fn passes_with_servers_of_its_own() {
    let (kafka, postgres) = (Kafka::start().unwrap(), Postgres::start().unwrap());
    assert!(kafka.logs().contains(KAFKA_LINE));
    assert!(postgres.logs().contains(POSTGRES_LINE));
}

#[test]
#[ignore = "run as a child process by the other tests"]
fn fails_with_the_shared_server() {
    let earlier = Postgres::database().unwrap();
    earlier.psql("SELECT 'of an earlier test' FROM nowhere").unwrap_err();
    drop(earlier);
    let mine = Postgres::database().unwrap();
    mine.psql("SELECT 'of this test' FROM nowhere").unwrap_err();
    panic!("on purpose");
}

fn command(name: &str) -> Command {
    let mut command = child_test(name);
    command.env_remove("LEVADA_POSTGRES_URL").env_remove("LEVADA_KEEP_LOGS");
    command
}

fn output_of(name: &str) -> Output {
    command(name).output().unwrap()
}

/// [TST-06]
#[test]
fn a_failing_test_shows_the_logs_of_its_servers() {
    let output = output_of("fails_with_servers_of_its_own");
    assert!(!output.status.success());
    assert!(printed(&output).contains(KAFKA_LINE), "{}", printed(&output));
    assert!(printed(&output).contains(POSTGRES_LINE), "{}", printed(&output));
}

/// [TST-06]
#[test]
fn a_passing_test_shows_no_log() {
    // Without the harness, which would keep to itself what a passing test shows.
    let output = command("passes_with_servers_of_its_own").arg("--nocapture").output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    assert!(!printed(&output).contains(KAFKA_LINE), "{}", printed(&output));
    assert!(!printed(&output).contains(POSTGRES_LINE), "{}", printed(&output));
}

/// [TST-06]
#[test]
fn a_failing_test_shows_its_own_part_of_the_shared_log() {
    let output = output_of("fails_with_the_shared_server");
    let shown = printed(&output);
    assert!(shown.contains("STATEMENT:  SELECT 'of this test'"), "{shown}");
    assert!(!shown.contains("of an earlier test"), "{shown}");
    assert_eq!(shown.matches("the end of the log of Postgres").count(), 1, "{shown}");
}

/// [TST-06]
#[test]
fn logs_of_a_failing_test_are_kept_where_asked() {
    let kept = tempfile::tempdir().unwrap();
    let mut failing = child_test("fails_with_servers_of_its_own");
    let output = failing.env("LEVADA_KEEP_LOGS", kept.path()).output().unwrap();
    let logs: Vec<_> = std::fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(logs.len(), 2, "{}", printed(&output));
    let text: String = logs.iter().map(|log| std::fs::read_to_string(log).unwrap()).collect();
    assert!(text.contains(KAFKA_LINE) && text.contains(POSTGRES_LINE));
}
