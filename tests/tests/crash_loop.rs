//! The bridge under kill -9: at every fail point and at random moments, while records flow.
#![cfg(feature = "failpoints")]

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use levada::FAIL_POINTS;
use levada_testcontainers::crash::{CrashLoop, Life, Report, Verdict, seed};
use levada_testcontainers::{Cut, Kafka, Postgres, wait_until};
use levada_tests::bridge::{BridgeCommand, PATIENCE};
use levada_tests::loop_length::loop_length;
use levada_tests::topic::Topic;
use levada_tests::weather::Weather;

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");

/// The one fail point that is passed only when Postgres was away.
const WHEN_POSTGRES_WAS_AWAY: &str = "pg::reconnect";
/// How long it stays away: so long that the other bridge notices, too.
const OUTAGE: Duration = Duration::from_secs(3);

const RECORDS: u64 = 200_000;
const KEYS: u64 = 20_000;
const PARTITIONS: u64 = 4;

/// [PGS-03] [BRG-09] [SRC-11] 200,000 records, paced over the loop, into an upsert table and into an insert-only table
/// without a key. The bridges of both are killed again and again, the network between them and both servers is cut, held
/// and slowed down; Postgres is stopped immediately once, and once it is lost and its standby takes over.
#[test]
#[ignore = "takes 90 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_bridge_writes_every_record_exactly_once() {
    let length = loop_length(90, 1200);
    // One number replays both loops; each has plans of its own.
    let seed = seed().expect("a seed");

    let kafka = Kafka::builder().behind_cut().start().expect("Kafka");
    let postgres = Postgres::start().expect("Postgres");
    let standby = postgres.synchronous_standby().expect("a standby");
    let line = Cut::to(postgres.url()).expect("a proxy");
    let topic = Topic::create(kafka.bootstrap(), PARTITIONS as i32);
    postgres.psql("CREATE TABLE latest (id bigint PRIMARY KEY, n bigint NOT NULL)").expect("a table");
    postgres.psql("CREATE TABLE log (n bigint NOT NULL, id bigint)").expect("a table");
    let brokers = kafka.bootstrap_behind_cut().expect("a proxy");
    let [upsert, insert] = pipelines(&brokers, &topic, &line.url(postgres.url()));

    let begun = Instant::now();
    let reports = thread::scope(|scope| {
        scope.spawn(|| produce(&topic, length));
        scope.spawn(|| {
            let weather = Weather::over(kafka.broker(1).cut().expect("a proxy"), seed, begun + length);
            println!("on the line to Kafka {weather}");
        });
        scope.spawn(|| {
            let weather = Weather::over(&line, seed.wrapping_add(1), begun + length.mul_f64(0.7));
            println!("on the line to Postgres {weather}");
            fail_over(&postgres, &standby, &line);
            let weather = Weather::over(&line, seed.wrapping_add(2), begun + length);
            println!("on the line to the standby that took over {weather}");
        });
        let upserting = scope.spawn(|| {
            let crash_loop = killing("upsert", seed, length)
                .in_the_middle(WHEN_POSTGRES_WAS_AWAY, |life| stop_postgres(&postgres, life));
            run(crash_loop, &upsert)
        });
        // Postgres is stopped for both and once.
        let inserting = scope.spawn(|| run(killing("insert", seed, length), &insert));
        [upserting, inserting].map(|handle| handle.join().expect("a loop"))
    });
    for report in &reports {
        println!("{report}");
    }

    // What is left is written in peace, and then the tables must be exactly what was produced.
    for pipeline in [&upsert, &insert] {
        BridgeCommand::new(LEVADA, pipeline).until_now().run().expect_code(0);
    }
    assert_tables_are_right(&standby);
    for report in &reports {
        report.covered().expect("a kill at every point");
    }
    let kills: u32 = reports.iter().map(Report::kills).sum();
    assert!(u64::from(kills) >= length.as_secs() / 3, "only {kills} kills");
}

/// The pipelines into the upsert table and into the insert-only table.
fn pipelines(brokers: &str, topic: &Topic, url: &str) -> [String; 2] {
    let pipeline = |table: &str, mode: &str| {
        format!(
            "name: {table}\nsource:\n  kafka: {{brokers: '{brokers}', topics: {}, format: json}}\n\
             sink:\n  postgres:\n    url: '{url}'\n    table: {table}\n{mode}\n\
             parallelism: 2\ncommit: {{rows: 500, age: 50ms}}\n",
            topic.name,
        )
    };
    let upsert =
        "    mode: upsert\n    key: {from: record_key, format: text, columns: id}\n    tombstones: delete";
    [pipeline("latest", upsert), pipeline("log", "    mode: insert")]
}

fn assert_tables_are_right(postgres: &Postgres) {
    let rows = |sql: &str| postgres.psql(sql).expect("SQL");
    assert_eq!(rows("SELECT count(*), count(DISTINCT n), min(n), max(n) FROM log").trim(), everything_once());
    let found: HashMap<u64, u64> = rows("SELECT id, n FROM latest")
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (id, n) = line.split_once('|').expect("two columns");
            (id.parse().expect("an id"), n.parse().expect("a number"))
        })
        .collect();
    let expected = latest();
    assert_eq!(found.len(), expected.len(), "rows of the upsert table");
    assert!(found == expected, "the upsert table holds the last change of each key");
}

/// The records: number `n` changes key `n % KEYS`; every fiftieth deletes its key.
fn is_deletion(n: u64) -> bool {
    n % 50 == 49
}

/// What the insert-only table holds: tombstones are ignored there.
fn everything_once() -> String {
    let values = (0..RECORDS).filter(|n| !is_deletion(*n));
    let count = values.clone().count();
    format!("{count}|{count}|{}|{}", values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
}

/// What the upsert table holds.
fn latest() -> HashMap<u64, u64> {
    let mut rows = HashMap::new();
    for n in 0..RECORDS {
        if is_deletion(n) {
            rows.remove(&(n % KEYS));
        } else {
            rows.insert(n % KEYS, n);
        }
    }
    rows
}

fn produce(topic: &Topic, lasting: Duration) {
    let begun = Instant::now();
    for n in 0..RECORDS {
        // Paced over nine tenths of the loop; the client is served meanwhile.
        while begun.elapsed().as_secs_f64() < lasting.as_secs_f64() * 0.9 * n as f64 / RECORDS as f64 {
            topic.wait(Duration::from_millis(5));
        }
        let key = (n % KEYS).to_string();
        let value = format!("{{\"n\":{n}}}");
        topic.send(
            Some((n % PARTITIONS) as i32),
            Some(&key),
            Some(&value).filter(|_| !is_deletion(n)).map(|v| &**v),
        );
    }
    topic.flush();
}

/// Kills at every fail point that a bridge passes while all is well.
fn killing(name: &str, seed: u64, length: Duration) -> CrashLoop<'_> {
    let points = FAIL_POINTS.iter().filter(|point| **point != WHEN_POSTGRES_WAS_AWAY);
    // A life has one claim.
    let claims = points.clone().filter(|point| point.starts_with("pg::claim"));
    let crash_loop = CrashLoop::new(name).seed(seed).lasting(length).points(points);
    claims.fold(crash_loop, |crash_loop, point| crash_loop.point(point, 1..=1))
}

fn run(crash_loop: CrashLoop<'_>, pipeline: &str) -> Report {
    let bridge = BridgeCommand::new(LEVADA, pipeline);
    match crash_loop.run(|_| bridge.copy()) {
        Ok(report) => report,
        Err(error) => panic!("{}", error.chain()),
    }
}

/// Kills the server and lets its standby take over, at the same address for those who come through the proxy.
fn fail_over(postgres: &Postgres, standby: &Postgres, line: &Cut) {
    postgres.kill();
    standby.promote().expect("the standby takes over");
    line.connect_to(standby.url()).expect("the proxy is redirected");
    println!("failover");
}

/// Stops Postgres immediately while a bridge writes, and starts it again a while after the bridge has died of it.
fn stop_postgres(postgres: &Postgres, life: &mut Life) -> Verdict {
    life.wait_for_log("claimed", PATIENCE)?;
    postgres.stop_immediate()?;
    let away = Instant::now();
    life.wait_for_end(PATIENCE)?;
    wait_until(PATIENCE, "the end of the outage", || away.elapsed() > OUTAGE)?;
    postgres.restart()?;
    Ok(())
}
