//! The calls to other systems.

use std::collections::BTreeMap;

use levada_testcontainers::Postgres;

use crate::program::{Program, run};
use crate::redis::Redis;

/// One run of the mock client: in which order it answered, and in which order results left.
struct Shown {
    answered: Vec<u64>,
    left: Vec<u64>,
}

fn shown(out: &str, title: &str) -> Shown {
    let (_, after) = out.split_once(&format!("{title}\n")).expect(title);
    let row = |begin: &str| {
        let row = after.lines().find_map(|line| line.trim_start().strip_prefix(begin)).expect("a row");
        row.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    };
    Shown { answered: row("answered:"), left: row("left:") }
}

fn of_key(numbers: &[u64], key: u64) -> Vec<u64> {
    numbers.iter().copied().filter(|number| number % 3 == key).collect()
}

fn sorted(numbers: &[u64]) -> Vec<u64> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers
}

/// [ASY-14] a mock client with random latency, in each order.
#[test]
fn mock_client_answers_at_random_and_results_leave_in_the_order_asked_for() {
    let all: Vec<u64> = (0..12).collect();
    for seed in ["1", "2"] {
        let out = run(env!("CARGO_BIN_EXE_async_mock_client"), &[seed]);
        let ordered = shown(&out, "ordered");
        assert_eq!(ordered.left, all, "{out}");
        assert_ne!(ordered.answered, all, "{out}");

        let unordered = shown(&out, "unordered");
        assert_eq!(unordered.left, unordered.answered, "{out}");
        assert_eq!(sorted(&unordered.left), all, "{out}");
        assert_ne!(unordered.left, all, "{out}");

        let keyed = shown(&out, "per key, the remainder by 3");
        for key in 0..3 {
            assert_eq!(of_key(&keyed.left, key), of_key(&all, key), "{out}");
        }
        assert_ne!(keyed.left, all, "{out}");

        let segments = shown(&out, "unordered, a watermark behind each fourth");
        for (segment, expected) in segments.left.chunks(4).zip(all.chunks(4)) {
            assert_eq!(sorted(segment), expected, "{out}");
        }
        assert_ne!(segments.left, all, "{out}");
        assert_ne!(segments.left, segments.answered, "{out}");
    }
}

/// [ASY-01] [ASY-14] a client that blocks: at most three connections, and all calls of one by one prepared statement.
#[test]
fn blocking_client_has_a_connection_and_a_prepared_statement_a_thread() {
    let out = run(env!("CARGO_BIN_EXE_async_blocking_sqlite"), &[]);
    let planes =
        ["plane 0: A320", "plane 1: B737", "plane 2: E190", "plane 3: CRJ-200", "plane 4: not in the table"];
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..40], planes.repeat(8), "{out}");
    let mut calls = 0;
    for thread in &lines[40..] {
        let words: Vec<&str> = thread.split(' ').collect();
        let [_, number, answered, _, runs, ..] = words[..] else { panic!("{out}") };
        assert!(["0:", "1:", "2:"].contains(&number), "{out}");
        // A statement prepared again would have run once.
        assert_eq!(answered, runs, "{out}");
        calls += answered.parse::<u64>().expect("a number");
    }
    assert_eq!(calls, 40, "{out}");
    assert!((1..=3).contains(&(lines.len() - 40)), "{out}");
}

/// [ASY-14] a hash lookup in a real Redis: found, a miss that says so, and a code that reads like a command and is none; the same
/// although the connection is lost on the way.
#[test]
fn redis_lookup_tells_a_miss_from_a_hit() {
    let redis = Redis::start();
    let out = run(env!("CARGO_BIN_EXE_async_redis"), &[&redis.url()]);
    let once = "\
\"LH\": Lufthansa, Germany
\"XX\": no such airline
\"TP\": TAP Air Portugal, Portugal
\"AF\\r\\nFLUSHALL\\r\\n\": no such airline
\"AF\": Air France, France
";
    assert_eq!(out, once.repeat(2) + "some calls were made again: true\n");
    assert_eq!(redis.ask(&["hget", "levada_example:airline:LH", "name"]), "Lufthansa");
}

/// [ASY-14] what is no hash is an error that names the record, no miss.
#[test]
fn redis_lookup_of_another_type_is_no_miss() {
    let redis = Redis::start();
    redis.ask(&["set", "levada_example:airline:XX", "text"]);
    let ended = Program::start(env!("CARGO_BIN_EXE_async_redis"), &[&redis.url()]).end();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    for told in ["class: BadRecord", "offset: 1", "WRONGTYPE"] {
        assert!(ended.err.contains(told), "{told}: {}", ended.err);
    }
    assert!(!ended.out.contains("no such airline"), "{}", ended.out);
}

/// [ASY-14] each flight once and in order, with its carrier's name where the table has it, by few queries.
#[test]
fn postgres_lookup_gives_flights_their_carriers() {
    let database = Postgres::database().expect("a database");
    let out = run(env!("CARGO_BIN_EXE_async_postgres_lookup"), &[database.url()]);
    let lines: Vec<&str> = out.lines().collect();
    let carriers = [("LH", "Lufthansa"), ("TP", "TAP Air Portugal"), ("AF", "Air France"), ("XX", "")];
    let flights = (0..1000).map(|number| (number, carriers[number % 4]));
    let expected: Vec<String> =
        flights.map(|(number, (code, name))| format!("{code}{number},{name}")).collect();
    assert_eq!(lines[..1000], expected);
    let [keys, _, queries, _] = lines[1000].split(' ').collect::<Vec<_>>()[..] else {
        panic!("{}", lines[1000])
    };
    assert_eq!((lines.len(), keys), (1001, "1000"));
    // A carrier that is not there is asked for with each batch; one flight at a time would take more than 250.
    let queries: u64 = queries.parse().expect("a number");
    assert!((1..100).contains(&queries), "{queries} queries");
}

/// [ASY-14] one run prints all nine rates.
#[test]
fn throughput_is_printed_for_each_latency_and_form_of_call() {
    let out = run(env!("CARGO_BIN_EXE_async_throughput"), &[]);
    let mut lines = out.lines();
    assert!(lines.next().is_some_and(|head| head.starts_with("records/s")), "{out}");
    let rates: BTreeMap<u32, [f64; 3]> = lines.map(latency_and_rates).collect();
    assert_eq!(rates.keys().copied().collect::<Vec<_>>(), [1, 5, 20], "{out}");
    for (latency, [synchronous, asynchronous, batched]) in rates {
        assert!(synchronous > 0.0 && synchronous <= 1000.0 / f64::from(latency), "{out}");
        assert!(asynchronous > 3.0 * synchronous, "{out}");
        // At the shorter latencies a core is what bounds both.
        assert!(batched > asynchronous || latency < 20, "{out}");
    }
}

fn latency_and_rates(line: &str) -> (u32, [f64; 3]) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["latency", latency, "ms", rates @ ..] = &words[..] else { panic!("{line}") };
    let rates: Vec<f64> = rates.iter().map(|rate| rate.parse().expect("a number")).collect();
    (latency.parse().expect("a number"), rates.try_into().expect("three rates"))
}
