//! What a fault does to a program that has no protection against it, where no other file shows it.
//!
//! | fault | what it costs the careless | shown in |
//! |---|---|---|
//! | kill -9 of a program | rows lost or doubled | `crash.rs` |
//! | kill -9 of Postgres | what was acknowledged before it was written | `postgres.rs` |
//! | kill -9 of one broker of three | what its leader acknowledged alone | `cluster.rs` |
//! | a broker that is away | what is given up meanwhile | here |
//! | an answer cut off | the row or record of a blind retry, twice | `cut_postgres.rs`, `cluster.rs` |
//! | delay, hold | a deadline that is taken for a failure; a lock that nobody gives back | `cut_postgres.rs` |
//! | half-close | the second half of an answer | here |
//! | throttle | whatever does not fit into a fixed time | here |
//! | promotion | what an asynchronous standby had not received | `failover.rs` |
//! | full disk | rows and records whose error is ignored | `full_disk.rs` |
//! | a pooler in transaction mode | the session's state | `pgbouncer.rs` |

mod clients;

use std::process::{Command, Output};
use std::time::Duration;

use clients::kafka::{PATIENCE, acknowledged, at, consumed, create_topic};
use levada_testcontainers::{Action, Cut, Direction, Kafka, Postgres, Trigger};

/// Reads the numbers below 100,000 through a line to a server.
fn read_numbers(cut: &Cut) -> Command {
    let postgres = Postgres::shared().unwrap();
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--dbname", &cut.url(postgres.url())]);
    psql.args(["--command", "COPY (SELECT generate_series(1, 100000)) TO STDOUT"]);
    psql
}

fn rows(output: &Output) -> usize {
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

/// [TST-04] An end of file is no end of the answer: who does not look at the exit code has lost the rest.
#[test]
fn half_an_answer_is_taken_for_a_whole_one_by_who_ignores_the_error() {
    let cut = Cut::to(Postgres::shared().unwrap().url()).unwrap();
    let whole = read_numbers(&cut).output().unwrap();
    assert!(whole.status.success());
    assert_eq!(rows(&whole), 100_000);
    let rule = cut.when(Direction::ToClient, Trigger::after_bytes(200_000), Action::HalfClose);
    let half = read_numbers(&cut).output().unwrap();
    rule.wait(PATIENCE).unwrap();
    assert!(rows(&half) > 1000 && rows(&half) < 100_000, "{} rows", rows(&half));
    assert!(!half.status.success(), "psql says so to who listens");
}

/// [TST-04] A thin line: what takes as long as it takes arrives, what is given a fixed time does not.
#[test]
fn a_fixed_time_is_too_short_on_a_thin_line() {
    let cut = Cut::to(Postgres::shared().unwrap().url()).unwrap();
    // The answer has 1.2 MB with its framing.
    cut.throttle(400_000);
    let mut impatient = Command::new("timeout");
    impatient.arg("1").arg(read_numbers(&cut).get_program()).args(read_numbers(&cut).get_args());
    let given_up = impatient.output().unwrap();
    assert_eq!(given_up.status.code(), Some(124), "it was given up");
    assert!(rows(&given_up) < 100_000);
    let patient = read_numbers(&cut).output().unwrap();
    assert!(patient.status.success());
    assert_eq!(rows(&patient), 100_000);
}

/// [TST-04] A broker that is away: who waits for it has lost nothing, who gives up and does not look has.
#[test]
fn a_record_that_is_given_up_is_lost_when_the_broker_was_away() {
    let kafka = Kafka::start().unwrap();
    let properties = at(kafka.bootstrap());
    create_topic(&properties, "given-up", &[1], &[]);
    create_topic(&properties, "waited-for", &[1], &[]);
    kafka.kill();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| acknowledged(&properties, "waited-for", ["a".to_owned()], PATIENCE));
        let short = Duration::from_secs(1);
        let given_up = acknowledged(&properties, "given-up", ["a".to_owned()], short);
        assert!(given_up.is_empty(), "it was acknowledged by a broker that is away");
        kafka.restart().unwrap();
        assert_eq!(waiting.join().unwrap(), ["a"]);
    });
    assert_eq!(consumed(&properties, "waited-for"), ["a"]);
    assert!(consumed(&properties, "given-up").is_empty());
}
