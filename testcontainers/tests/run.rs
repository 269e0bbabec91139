//! `levada-testcontainers run -- COMMAND`.

mod observe;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use levada_testcontainers::{Error, Kafka, Postgres, Provider, wait_until};
use observe::{descendants_of, is_alive, printed};

const PATIENCE: Duration = Duration::from_secs(20);

fn run(options: &[&str], command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_levada-testcontainers"));
    run.arg("run").args(options).arg("--").args(command);
    // These tests may themselves run inside a run.
    for variable in ["LEVADA_KAFKA_BOOTSTRAP", "LEVADA_POSTGRES_URL", "LEVADA_KEEP_LOGS", "LEVADA_PROVIDER"] {
        run.env_remove(variable);
    }
    run
}

fn output_of(options: &[&str], command: &[&str]) -> Output {
    run(options, command).output().unwrap()
}

/// A run whose command is up, and every process below it.
fn running() -> (Child, Vec<i32>) {
    let mut child = run(&[], &["sh", "-c", "echo up; exec sleep 600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let below = descendants_of(child.id().cast_signed());
    // The command, the reaper, Java, the postmaster and its children.
    assert!(below.len() >= 7, "{below:?}");
    (child, below)
}

fn assert_all_end(below: &[i32]) {
    wait_until(PATIENCE, "the end of all below", || !below.iter().any(|pid| is_alive(*pid))).unwrap();
}

/// Checks that this process has started no server; the reaper, which ends tools such as `psql`, is none.
fn assert_nothing_started() {
    let is_reaper = |pid: &i32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains("levada-reaper")
    };
    let mut below = descendants_of(std::process::id().cast_signed());
    below.retain(|pid| !is_reaper(pid));
    assert!(below.is_empty(), "a server of its own was started: {below:?}");
}

/// Not a test: one of the test binaries that share servers. It says what it uses.
#[test]
#[ignore = "run as a child process by the other tests"]
fn says_what_it_shares() {
    let kafka = Kafka::shared().unwrap();
    let postgres = Postgres::shared().unwrap();
    let started = postgres.psql("SELECT pg_postmaster_start_time()").unwrap();
    println!("\nshared {} {} {started}", kafka.bootstrap(), postgres.url());
    assert_nothing_started();
}

/// [TST-01] [TST-08] The start is paid once.
#[test]
fn every_test_binary_of_a_run_uses_the_same_servers() {
    let binary = std::env::current_exe().unwrap();
    let twice = format!(
        "for i in 1 2; do {} --exact says_what_it_shares --ignored --nocapture || exit 1; done; \
         echo exported $LEVADA_KAFKA_BOOTSTRAP $LEVADA_POSTGRES_URL",
        binary.display()
    );
    let output = output_of(&[], &["sh", "-c", &twice]);
    assert!(output.status.success(), "{}", printed(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let shared: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("shared ")).collect();
    let exported = text.lines().find_map(|line| line.strip_prefix("exported ")).unwrap();
    assert_eq!(shared.len(), 2, "{text}");
    assert_eq!(shared[0], shared[1]);
    assert!(shared[0].starts_with(exported), "{text}");
}

/// [TST-01]
#[test]
fn the_exit_code_is_the_command_s() {
    assert_eq!(output_of(&["--postgres"], &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(output_of(&["--postgres"], &["true"]).status.code(), Some(0));
    assert_eq!(output_of(&["--postgres"], &["sh", "-c", "kill -9 $$"]).status.code(), Some(137));
}

/// [TST-01]
#[test]
fn only_the_servers_asked_for_are_started() {
    let output = output_of(&["--postgres"], &["sh", "-c", "echo ${LEVADA_KAFKA_BOOTSTRAP-none}"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "none\n");
}

/// [TST-01]
#[test]
fn a_command_that_does_not_exist_is_our_failure() {
    let output = output_of(&["--postgres"], &["no-such-command"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(printed(&output).contains("cannot start no-such-command"), "{}", printed(&output));
}

/// [TST-06]
#[test]
fn logs_are_shown_when_the_command_fails_and_only_then() {
    let failed = output_of(&["--postgres"], &["false"]);
    assert!(
        printed(&failed).contains("database system is ready to accept connections"),
        "{}",
        printed(&failed)
    );
    let passed = output_of(&["--postgres"], &["true"]);
    assert_eq!(printed(&passed), "levada-testcontainers: provider process (by default)\n");
}

/// [TST-05]
#[test]
fn a_terminated_run_ends_its_command_and_servers() {
    let (mut child, below) = running();
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_all_end(&below);
}

/// [TST-05]
#[test]
fn a_killed_run_ends_its_command_and_servers() {
    let (mut child, below) = running();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_end(&below);
}

/// Not a test: a test process of an external provider. It makes and drops a database, and is refused a server of its own.
#[test]
#[ignore = "run as a child process by the other tests"]
fn uses_what_somebody_else_runs() {
    assert_eq!(Provider::chosen().unwrap(), Provider::External);
    let kafka = Kafka::shared().unwrap();
    let database = Postgres::database().unwrap();
    database.psql("CREATE TABLE mine (n int)").unwrap();
    assert!(matches!(Kafka::start(), Err(Error::Refused { .. })));
    assert!(matches!(Postgres::start(), Err(Error::Refused { .. })));
    println!("\nshared {} {}", kafka.bootstrap(), database.server().url());
    assert_nothing_started();
}

/// [TST-02] Endpoints given in the environment are used as they are; nothing is started, ended or deleted there.
#[test]
fn an_external_server_keeps_what_was_there() {
    let postgres = Postgres::start().unwrap();
    postgres.psql("CREATE DATABASE theirs").unwrap();
    let databases = || postgres.psql("SELECT datname FROM pg_database ORDER BY 1").unwrap();
    let before = databases();
    let mut child = observe::child_test("uses_what_somebody_else_runs");
    child.arg("--nocapture").env("LEVADA_PROVIDER", "external");
    child.env("LEVADA_KAFKA_BOOTSTRAP", "broker.example:9092").env("LEVADA_POSTGRES_URL", postgres.url());
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let expected = format!("shared broker.example:9092 {}", postgres.url());
    assert!(printed(&output).contains(&expected), "{}", printed(&output));
    assert!(printed(&output).contains("provider external (as LEVADA_PROVIDER says)"), "{}", printed(&output));
    assert!(postgres.pid().is_some_and(is_alive));
    assert_eq!(databases(), before);
}

/// [TST-02]
#[test]
fn an_external_provider_without_addresses_is_one_clear_message() {
    let mut child = observe::child_test("uses_what_somebody_else_runs");
    child.arg("--nocapture").env("LEVADA_PROVIDER", "external").env_remove("LEVADA_KAFKA_BOOTSTRAP");
    let output = child.output().unwrap();
    assert!(!output.status.success());
    let message = "it is not set, and an external provider starts nothing";
    assert!(printed(&output).contains(message), "{}", printed(&output));
}

/// [TST-01] [TST-02] What a run exported is used without a start, and a server of one's own can still be started.
#[test]
fn exported_addresses_are_used_without_a_start() {
    let postgres = Postgres::start().unwrap();
    let mut child = observe::child_test("says_what_it_shares");
    child.arg("--nocapture").env("LEVADA_KAFKA_BOOTSTRAP", "broker.example:9092");
    let output = child.env("LEVADA_POSTGRES_URL", postgres.url()).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let expected = format!("shared broker.example:9092 {} ", postgres.url());
    assert!(printed(&output).contains(&expected), "{}", printed(&output));
}
