//! The bridge under kill -9: at every fail point and at random moments, while records flow.
#![cfg(feature = "failpoints")]

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada::FAIL_POINTS;
use levada_testcontainers::{Kafka, Postgres, wait_until};
use levada_tests::bridge::{BridgeCommand, PATIENCE};
use levada_tests::topic::Topic;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

const LEVADA: &str = env!("CARGO_BIN_EXE_levada-under-test");

/// The one fail point that not every run passes: somebody must connect anew for it.
const WHEN_POSTGRES_IS_AWAY: &str = "pg::reconnect";

const RECORDS: u64 = 200_000;
const KEYS: u64 = 20_000;
const PARTITIONS: u64 = 4;

/// What was done to one pipeline.
#[derive(Debug, Default)]
struct Kills {
    at_fail_points: BTreeMap<String, u32>,
    at_random: u32,
}

impl Kills {
    fn total(&self) -> u32 {
        self.at_random + self.at_fail_points.values().sum::<u32>()
    }
}

/// How the loops and the outage of Postgres find together, so that somebody is killed while he connects anew.
#[derive(Debug, Default)]
struct Outage {
    is_due: AtomicBool,
    is_awaited: AtomicBool,
}

/// [PGS-03] [BRG-09] [SRC-11] 200,000 records, paced over the loop, into an upsert table and into an insert-only table
/// without a key; the bridges of both are killed again and again, and Postgres is stopped immediately once. Network cut
/// and failover come later.
#[test]
#[ignore = "takes LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_bridge_writes_every_record_exactly_once() {
    let seconds: u64 = env::var("LEVADA_CRASH_SECONDS").map_or(30, |text| text.parse().expect("seconds"));
    let seed: u64 =
        env::var("LEVADA_SEED").map_or_else(|_| rand::random(), |text| text.parse().expect("a seed"));
    println!("crash loop of {seconds} s, LEVADA_SEED={seed}");

    let kafka = Kafka::shared().expect("Kafka");
    let postgres = Postgres::start().expect("Postgres");
    let topic = Topic::create(kafka.bootstrap(), PARTITIONS as i32);
    postgres.psql("CREATE TABLE latest (id bigint PRIMARY KEY, n bigint NOT NULL)").expect("a table");
    postgres.psql("CREATE TABLE log (n bigint NOT NULL, id bigint)").expect("a table");
    let pipeline = |name: &str, sink: &str| {
        format!(
            "name: {name}\nsource:\n  kafka: {{brokers: '{}', topics: {}, format: json}}\n\
             sink:\n  postgres:\n    url: '{}'\n    table: {name}\n{sink}\n\
             parallelism: 2\ncommit: {{rows: 500, age: 50ms}}\n",
            kafka.bootstrap(),
            topic.name,
            postgres.url(),
        )
    };
    let upsert = pipeline(
        "latest",
        "    mode: upsert\n    key: {from: record_key, format: text, columns: id}\n    tombstones: delete",
    );
    let insert = pipeline("log", "    mode: insert");

    let end = Instant::now() + Duration::from_secs(seconds);
    let outage = Outage::default();
    let kills = thread::scope(|scope| {
        scope.spawn(|| produce(&topic, Duration::from_secs(seconds)));
        scope.spawn(|| stop_postgres_once(&postgres, &outage, end, seconds));
        let outage = &outage;
        let loops = [(&upsert, seed), (&insert, seed.wrapping_add(1))]
            .map(|(pipeline, seed)| scope.spawn(move || kill_again_and_again(pipeline, outage, seed, end)));
        loops.map(|handle| handle.join().expect("a loop"))
    });

    for (name, kills) in ["upsert", "insert"].iter().zip(&kills) {
        println!(
            "{name}: {} kills, {} at random, by fail point {:?}",
            kills.total(),
            kills.at_random,
            kills.at_fail_points
        );
    }
    let total: u32 = kills.iter().map(Kills::total).sum();
    println!("{total} kills in all, LEVADA_SEED={seed}");

    // What is left is written in peace, and then the tables must be exactly what was produced.
    for pipeline in [&upsert, &insert] {
        BridgeCommand::new(LEVADA, pipeline).until_now().run().expect_code(0);
    }
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

    assert!(total >= 30, "at least 30 kills");
    for point in FAIL_POINTS {
        assert!(
            kills.iter().any(|kills| kills.at_fail_points.contains_key(*point)),
            "nobody was killed at {point}"
        );
    }
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

/// Stops Postgres immediately in the middle of the loop, when a bridge waits for it, and starts it again after a while.
fn stop_postgres_once(postgres: &Postgres, outage: &Outage, end: Instant, seconds: u64) {
    let middle = end - Duration::from_secs(seconds / 2);
    wait_until(Duration::from_secs(seconds), "the middle of the loop", || Instant::now() >= middle)
        .expect("time passes");
    outage.is_due.store(true, Ordering::SeqCst);
    wait_until(PATIENCE, "a bridge that waits for the outage", || outage.is_awaited.load(Ordering::SeqCst))
        .expect("one");
    postgres.stop_immediate().expect("Postgres stops");
    let away = Instant::now();
    wait_until(PATIENCE, "a while", || away.elapsed() > Duration::from_secs(3)).expect("time passes");
    postgres.restart().expect("Postgres starts");
}

fn kill_again_and_again(pipeline: &str, outage: &Outage, seed: u64, end: Instant) -> Kills {
    let mut random = StdRng::seed_from_u64(seed);
    let mut kills = Kills::default();
    let mut due: Vec<&str> = Vec::new();
    while Instant::now() < end {
        if outage.is_due.swap(false, Ordering::SeqCst) {
            killed_while_postgres_is_away(pipeline, outage);
            *kills.at_fail_points.entry(WHEN_POSTGRES_IS_AWAY.to_owned()).or_default() += 1;
            continue;
        }
        if due.is_empty() {
            due = FAIL_POINTS.iter().copied().filter(|point| *point != WHEN_POSTGRES_IS_AWAY).collect();
            due.shuffle(&mut random);
        }
        let point = if random.random_bool(0.6) { due.pop() } else { None };
        let patience = match point {
            Some(_) => Duration::from_secs(10),
            None => Duration::from_millis(random.random_range(50..2500)),
        };
        let count = point
            .map_or(0, |point| if point.starts_with("pg::claim") { 1 } else { random.random_range(1..20) });
        let mut command = BridgeCommand::new(LEVADA, pipeline);
        if let Some(point) = point {
            command = command.env("LEVADA_TEST_KILL_AT", &format!("{point}:{count}"));
        }
        let mut bridge = command.start();
        let has_ended = bridge.ends_within(patience);
        bridge.kill();
        let finished = bridge.finish();
        match point.filter(|_| has_ended) {
            Some(point) => {
                assert_eq!(
                    finished.code, None,
                    "killed at {point}, and not ended by itself:\n{}",
                    finished.log
                );
                *kills.at_fail_points.entry(point.to_owned()).or_default() += 1;
            }
            None => {
                assert!(!has_ended, "the bridge ended by itself:\n{}", finished.log);
                kills.at_random += 1;
            }
        }
    }
    kills
}

fn killed_while_postgres_is_away(pipeline: &str, outage: &Outage) {
    let place = format!("{WHEN_POSTGRES_IS_AWAY}:1");
    let mut bridge = BridgeCommand::new(LEVADA, pipeline).env("LEVADA_TEST_KILL_AT", &place).start();
    bridge.wait_for_log("claimed");
    outage.is_awaited.store(true, Ordering::SeqCst);
    let finished = bridge.finish();
    assert_eq!(finished.code, None, "killed while Postgres was away:\n{}", finished.log);
}
