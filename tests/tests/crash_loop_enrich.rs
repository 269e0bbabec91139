//! The quickstart's own pipeline under kill -9, with lookups in flight.
#![cfg(feature = "failpoints")]

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use levada::FAIL_POINTS;
use levada_testcontainers::crash::{CrashLoop, seed};
use levada_testcontainers::{Kafka, Postgres};
use levada_tests::bridge::BridgeCommand;
use levada_tests::flights::{load_tables, oracle, quickstart_file};
use levada_tests::loop_length::loop_length;
use levada_tests::topic::Topic;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");
const PARTITIONS: i32 = 4;

/// [BRG-09] [ASY-08] A month of flights, paced over the loop, each with its airline, destination and plane. The bridge is killed at
/// random moments and at every step of a commit, with lookups in flight; in the end rows and what was looked up for them are what
/// an independent program finds.
#[test]
#[ignore = "takes 60 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_bridge_with_lookups_in_flight_writes_every_flight_exactly_once() {
    let length = loop_length(60, 300);
    let seed = seed().expect("a seed");
    let kafka = Kafka::shared().expect("Kafka");
    let topic = Topic::create(kafka.bootstrap(), PARTITIONS);
    let database = Postgres::database().expect("a database");
    database.psql(&quickstart_file("flights.sql")).expect("tables");
    load_tables(&database);
    let pipeline =
        quickstart_file("flights.yaml").replace("topics: flights", &format!("topics: {}", topic.name));
    // Little enough that many commits are under way, and batches of lookups that a commit cuts in two.
    let pipeline = format!("{pipeline}\ncommit: {{rows: 300, age: 50ms}}\n");
    let bridge = || {
        BridgeCommand::new(LEVADA, &pipeline)
            .env("QUICKSTART_KAFKA", kafka.bootstrap())
            .env("QUICKSTART_POSTGRES", database.url())
    };

    // Passed only when Postgres was away.
    let points = FAIL_POINTS.iter().filter(|point| **point != "pg::reconnect");
    let claims = points.clone().filter(|point| point.starts_with("pg::claim"));
    let killing = CrashLoop::new("enrich").seed(seed).lasting(length).points(points);
    let killing = claims.fold(killing, |killing, point| killing.point(point, 1..=1));
    let report = thread::scope(|scope| {
        scope.spawn(|| produce(&topic, length));
        let command = bridge();
        killing.run(|_| command.copy())
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => panic!("{}", error.chain()),
    };
    println!("{report}");

    bridge().until_now().run().expect_code(0);
    let found = database.psql(&oracle("enriched.sql")).expect("SQL");
    let expected = Command::new("python3").arg(Path::new("oracle/enriched.py")).output().expect("python3");
    assert_eq!(found.trim(), String::from_utf8_lossy(&expected.stdout).trim());
    assert!(found.starts_with("27004 "), "{found}");
    report.covered().expect("a kill at every point");
}

/// Sends the flights over nine tenths of the loop.
fn produce(topic: &Topic, lasting: Duration) {
    let flights = levada_tests::flights::january();
    let (begun, count) = (Instant::now(), flights.len() as f64);
    for (number, flight) in flights.iter().enumerate() {
        while begun.elapsed().as_secs_f64() < lasting.as_secs_f64() * 0.9 * number as f64 / count {
            topic.wait(Duration::from_millis(5));
        }
        topic.send(None, Some(&flight.key), Some(&flight.value));
    }
    topic.flush();
}
