//! The Postgres lookup against what latency allows: pipelined calls, and batches of them.
//!
//! A table of 300,000 rows behind a proxy that makes each round trip take about 5 ms. The base latency L is the median of
//! 1,000 single calls in the same run. Each record asks for another key, and nothing is kept. Beside it: one call after the
//! other, and answers from the cache against the bare cache.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use levada_benches::measure;
use levada_core::Value;
use levada_postgres::lookup::{CacheBound, CacheConfig};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresLookup, PostgresLookupConfig};
use levada_testcontainers::{Cut, Postgres};
use measure::{Run, Stopwatch};

#[derive(Parser)]
struct Arguments {
    /// Records of a run, each with a key of its own.
    #[arg(long, default_value_t = 300_000)]
    records: u64,
    /// Runs of each variant.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Latency of each direction, in microseconds.
    #[arg(long, default_value_t = 2500)]
    one_way: u64,
    /// Runs one variant only: for the program's own use.
    #[arg(long, hide = true)]
    variant: Option<String>,
    #[arg(long, hide = true, default_value = "")]
    url: String,
}

/// Calls in flight, one key each.
const CALLS: u64 = 100;
/// Calls in flight, many keys each.
const BATCHES: u64 = 16;
const KEYS_OF_A_BATCH: u64 = 500;
/// Single calls whose median is the base latency.
const SINGLE: u64 = 1_000;
/// Keys that the cache holds.
const CACHED: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let Some(variant) = arguments.variant.as_deref() else { return compare(&arguments) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let run = match variant {
        "bare_cache" => bare_cache(arguments.records),
        _ => runtime.block_on(run(&arguments, variant))?,
    };
    println!("{}", serde_json::to_string(&run)?);
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let postgres = Postgres::builder().setting("shared_buffers", "256MB").start()?;
    postgres.psql(&format!(
        "create table t (k int primary key, name text, country text);
         insert into t select n, 'name of ' || n, 'country ' || n % 200 from generate_series(0, {}) as n",
        arguments.records
    ))?;
    // Not in the same transaction.
    postgres.psql("vacuum analyze t")?;
    let cut = Cut::to(postgres.url())?;
    cut.delay(Duration::from_micros(arguments.one_way));
    let (records, url) = (arguments.records.to_string(), cut.url(postgres.url()));
    let passed_on = ["--records", &records, "--url", &url].map(str::to_owned);
    let variants = ["single", "unbatched", "batched", "cached", "bare_cache"];
    let before = measure::cpu_of_tree(postgres.pid());
    let runs = measure::alternate(&variants, arguments.rounds, &passed_on)?;
    let server = measure::cpu_of_tree(postgres.pid()) - before;

    let rate = |variant: &str| measure::median(&runs[variant], Run::rate);
    let latency = 1.0 / rate("single");
    let possible = CALLS as f64 / latency;
    let unbatched = rate("unbatched") / possible;
    let batched = rate("batched") / (10.0 * rate("unbatched"));
    let three_digits = |figure: f64| (figure * 1000.0).round() / 1000.0;
    println!(
        "{}",
        serde_json::json!({
            "name": "lookup",
            "ratio": three_digits(unbatched.min(0.9 * batched)),
            "base_latency_ms": three_digits(latency * 1000.0),
            "unbatched_of_possible": three_digits(unbatched),
            "batched_of_unbatched": three_digits(batched * 10.0),
            "synchronous": measure::summary(&runs["single"]),
            "unbatched": measure::summary(&runs["unbatched"]),
            "batched": measure::summary(&runs["batched"]),
            "cached": measure::summary(&runs["cached"]),
            "bare_cache": measure::summary(&runs["bare_cache"]),
            "cached_of_bare_cache": three_digits(rate("cached") / rate("bare_cache")),
            "server_cpu_s": three_digits(server),
        })
    );
    Ok(())
}

async fn run(arguments: &Arguments, variant: &str) -> Result<Run, Box<dyn Error>> {
    let config = PostgresLookupConfig::by_table(arguments.url.parse()?, TableName::new("t")?, ["k"])
        .columns(["name", "country"])
        .timeout(Duration::from_secs(60));
    let config = match variant {
        "cached" => config.cache(CacheConfig::new(CacheBound::Rows(10 * CACHED))),
        _ => config,
    };
    let lookup = PostgresLookup::open(config).await?;
    // Connections are made before the clock runs.
    side_by_side(&lookup, CALLS, 1, 10 * CALLS).await?;
    match variant {
        "single" => single(&lookup).await,
        "unbatched" => measured(&lookup, CALLS, 1, arguments.records).await,
        "batched" => measured(&lookup, BATCHES, KEYS_OF_A_BATCH, arguments.records).await,
        "cached" => cached(&lookup, arguments.records).await,
        other => Err(format!("there is no variant {other}").into()),
    }
}

/// One call after the other; as many records as there were, in a time in which each took the median.
async fn single(lookup: &PostgresLookup) -> Result<Run, Box<dyn Error>> {
    let watch = Stopwatch::default();
    let mut times = Vec::new();
    for key in 0..SINGLE {
        let begun = Instant::now();
        expect_one(&lookup.get(&[Value::Int(key as i64)]).await?);
        times.push(begun.elapsed());
    }
    times.sort();
    Ok(Run { seconds: times[times.len() / 2].as_secs_f64() * SINGLE as f64, ..watch.stop(SINGLE) })
}

async fn measured(
    lookup: &PostgresLookup,
    calls: u64,
    keys: u64,
    records: u64,
) -> Result<Run, Box<dyn Error>> {
    let before = lookup.stats();
    let watch = Stopwatch::default();
    side_by_side(lookup, calls, keys, records).await?;
    let run = watch.stop(records);
    let after = lookup.stats();
    assert_eq!(after.found - before.found, records, "every key was asked for, and found");
    Ok(run)
}

/// Has so many calls in flight until all records are looked up.
async fn side_by_side(
    lookup: &PostgresLookup,
    calls: u64,
    keys: u64,
    records: u64,
) -> Result<(), Box<dyn Error>> {
    let next = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..calls)
        .map(|_| {
            let (lookup, next) = (lookup.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let from = next.fetch_add(keys, Ordering::Relaxed);
                    let wanted = from..(from + keys).min(records);
                    if wanted.is_empty() {
                        return Ok::<(), levada_postgres::lookup::LookupError>(());
                    }
                    if keys == 1 {
                        expect_one(&lookup.get(&[Value::Int(from as i64)]).await?);
                        continue;
                    }
                    let wanted: Vec<[Value; 1]> = wanted.map(|key| [Value::Int(key as i64)]).collect();
                    for found in lookup.get_many(&wanted).await {
                        expect_one(&found?);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

fn expect_one(found: &levada_postgres::lookup::Found) {
    assert_eq!(found.len(), 1, "every key has a row");
}

/// How often each key is asked for; more records than the others have, for the same time.
const TIMES_MORE: u64 = 10;

/// The key that a record asks the cache for. Each comes once in a round, and neighbours lie far apart, as with real records: in
/// order, a cache that was filled in order would be read from one end of the memory to the other.
fn key_of(record: u64) -> u64 {
    record.wrapping_mul(7919) % CACHED
}

async fn cached(lookup: &PostgresLookup, records: u64) -> Result<Run, Box<dyn Error>> {
    side_by_side(lookup, BATCHES, KEYS_OF_A_BATCH, CACHED).await?;
    let records = records * TIMES_MORE;
    let watch = Stopwatch::default();
    for record in 0..records {
        expect_one(&lookup.get(&[Value::Int(key_of(record) as i64)]).await?);
    }
    Ok(watch.stop(records))
}

/// The cache that the lookup uses, alone.
fn bare_cache(records: u64) -> Run {
    let cache = moka::sync::Cache::new(10 * CACHED);
    for key in 0..CACHED {
        cache.insert(key, Arc::new(key));
    }
    let records = records * TIMES_MORE;
    let watch = Stopwatch::default();
    for record in 0..records {
        black_box(cache.get(&key_of(record)));
    }
    watch.stop(records)
}
