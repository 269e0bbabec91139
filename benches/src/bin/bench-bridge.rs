//! The whole bridge against its own writing half fed from memory: what reading and decoding cost on top of writing.
//!
//! One partition of 1 M JSON rows of about 200 bytes and 7 columns, one connection, upserts into an empty table. Beside
//! it, the same topic with a lookup on the way that adds a column, once with another key in each row and nothing kept, once
//! with 1,000 keys and a cache; and the same rows from 4 partitions by 4 subtasks: with the processor time of client, broker and Postgres, and with the
//! table locked for a while, to see what memory a stalled sink makes the process hold.

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use levada::assemble::{assemble, sink_config};
use levada::cli::Until;
use levada::config::{self, Pipeline};
use levada_benches::{load, measure};
use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, AtomicSink, Batch, BatchBuilder, Change, Keyed, Position, Positions, Record, Row, Shape,
    Sink, SinkContext, SplitId, SplitStart, StreamId, StreamStart,
};
use levada_formats::json::{JsonDecoder, JsonLimits};
use levada_postgres::sink::PostgresSink;
use levada_testcontainers::{Kafka, Postgres};
use measure::{Run, Stopwatch, rounded, set};
use tokio::time::timeout;
use tokio_postgres::NoTls;

#[derive(Parser)]
struct Arguments {
    /// Rows in each topic; LEVADA_BENCH_SECONDS times 100,000, or 1,000,000.
    #[arg(long, default_value_t = 100_000 * set("LEVADA_BENCH_SECONDS", 10))]
    rows: u64,
    /// Runs of each variant; LEVADA_BENCH_ROUNDS, or 5.
    #[arg(long, default_value_t = set("LEVADA_BENCH_ROUNDS", 5))]
    rounds: usize,
    /// Runs one variant only: for the program's own use.
    #[arg(long, hide = true)]
    variant: Option<String>,
    #[arg(long, hide = true, default_value = "")]
    brokers: String,
    #[arg(long, hide = true, default_value = "")]
    postgres: String,
}

/// Records of a batch, as the source makes them.
const BATCH: u64 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match arguments.variant.as_deref() {
        Some("memory") => println!("{}", serde_json::to_string(&runtime.block_on(memory(&arguments))?)?),
        Some("stalled") => println!("{}", serde_json::to_string(&runtime.block_on(stalled(&arguments))?)?),
        Some(variant) => {
            println!("{}", serde_json::to_string(&runtime.block_on(bridge(&arguments, variant))?)?);
        }
        None => compare(&arguments, &runtime)?,
    }
    Ok(())
}

fn compare(arguments: &Arguments, runtime: &tokio::runtime::Runtime) -> Result<(), Box<dyn Error>> {
    let kafka = Kafka::builder().for_throughput().heap("1g").start()?;
    // As a server is run, not as a test is: a commit waits for the disk.
    let settings =
        [("fsync", "on"), ("synchronous_commit", "on"), ("max_wal_size", "8GB"), ("shared_buffers", "1GB")];
    let builder =
        settings.iter().fold(Postgres::builder(), |builder, (name, value)| builder.setting(*name, *value));
    let postgres = builder.start()?;
    runtime.block_on(load::fill(kafka.bootstrap(), "one", 1, arguments.rows))?;
    runtime.block_on(load::fill(kafka.bootstrap(), "four", 4, arguments.rows))?;

    let rows = arguments.rows.to_string();
    let passed_on =
        ["--rows", &rows, "--brokers", kafka.bootstrap(), "--postgres", postgres.url()].map(str::to_owned);
    make_dimensions(&postgres, arguments.rows)?;
    let variants = ["one", "memory", "enriched", "enriched_cached"];
    let runs = measure::alternate(&variants, arguments.rounds, &passed_on)?;
    let servers = || (measure::cpu_of_tree(kafka.broker(1).pid()), measure::cpu_of_tree(postgres.pid()));
    let before = servers();
    let four = measure::alternate(&["four"], arguments.rounds, &passed_on)?;
    let after = servers();
    let stalled = measure::alternate(&["stalled"], 1, &passed_on)?;

    let rate = |variant: &str| measure::median(&runs[variant], Run::rate);
    let enriched = |variant: &str| {
        let mut summary = measure::summary(&runs[variant]);
        summary["of_bridge"] = rounded(rate(variant) / rate("one")).into();
        summary
    };
    let per_million = |seconds: f64| {
        let millions = (arguments.rows as usize * arguments.rounds) as f64 / 1e6;
        rounded(seconds / millions)
    };
    println!(
        "{}",
        serde_json::json!({
            "name": "bridge",
            "ratio": rounded(rate("one") / rate("memory")),
            "bridge": measure::summary(&runs["one"]),
            "memory": measure::summary(&runs["memory"]),
            "enriched": enriched("enriched"),
            "enriched_cached": enriched("enriched_cached"),
            "four_partitions": {
                "bridge": measure::summary(&four["four"]),
                "peak_mib_with_the_table_locked": stalled["stalled"][0].peak_mib.round(),
                "cpu_s_per_million": {
                    "client": rounded(measure::median(&four["four"], Run::cpu_per_million)),
                    "broker": per_million(after.0 - before.0),
                    "postgres": per_million(after.1 - before.1),
                },
            },
        })
    );
    Ok(())
}

/// The tables that rows are enriched from: one with a row for each row of the topic, and a small one.
fn make_dimensions(postgres: &Postgres, rows: u64) -> Result<(), Box<dyn Error>> {
    postgres.psql(&format!(
        "create table customers (customer text primary key, region text not null);
         insert into customers select 'customer-' || lpad((n * 7919 % 100000000)::text, 8, '0'), 'region ' || n % 200
             from generate_series(0::bigint, {rows} - 1) as n;
         create table regions (quantity int primary key, region text not null);
         insert into regions select n, 'region ' || n % 200 from generate_series(0, 999) as n"
    ))?;
    // Not in the same transaction.
    postgres.psql("vacuum analyze customers")?;
    postgres.psql("vacuum analyze regions")?;
    Ok(())
}

/// The step of a variant, in the pipeline file's words.
fn enrich(variant: &str) -> &'static str {
    match variant {
        "enriched" => {
            "enrich:\n  - name: region\n    postgres: {table: customers, key: [customer]}\n    fields: [region]\n    \
             miss: fail\n"
        }
        "enriched_cached" => {
            "enrich:\n  - name: region\n    postgres: {table: regions, key: [quantity], cache: {rows: 10000}}\n    \
             fields: [region]\n    miss: fail\n"
        }
        _ => "",
    }
}

fn pipeline(arguments: &Arguments, variant: &str) -> Result<Pipeline, Box<dyn Error>> {
    let (topic, parallelism) = if variant == "four" { ("four", 4) } else { ("one", 1) };
    let text = format!(
        "name: bench-{variant}\n\
         parallelism: {parallelism}\n\
         source:\n  kafka: {{brokers: \"{}\", topics: {topic}, format: json}}\n{}\
         sink:\n  postgres:\n    url: \"{}\"\n    table: orders\n    key: {{from: value, columns: id}}\n",
        arguments.brokers,
        enrich(variant),
        arguments.postgres
    );
    Ok(config::parse("bench.yaml".as_ref(), &text)?)
}

/// Makes the table anew and forgets the positions of earlier runs.
async fn reset(arguments: &Arguments, variant: &str) -> Result<(), Box<dyn Error>> {
    let client = connect(arguments).await?;
    client.batch_execute("DROP TABLE IF EXISTS orders; DROP SCHEMA IF EXISTS levada CASCADE").await?;
    client.batch_execute(load::TABLE).await?;
    if !enrich(variant).is_empty() {
        client.batch_execute("ALTER TABLE orders ADD region text NOT NULL").await?;
    }
    client.batch_execute("CHECKPOINT").await?;
    Ok(())
}

/// Returns a client; its connection ends with it.
async fn connect(arguments: &Arguments) -> Result<tokio_postgres::Client, Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(&arguments.postgres, NoTls).await?;
    // What the connection has to say, its client says, too.
    drop(tokio::spawn(connection));
    Ok(client)
}

async fn bridge(arguments: &Arguments, variant: &str) -> Result<Run, Box<dyn Error>> {
    reset(arguments, variant).await?;
    let mut job = assemble(&pipeline(arguments, variant)?, Some(Until::Now))?.job;
    job.progress().wait_for(|progress| !progress.started_at.is_empty()).await?;
    let watch = Stopwatch::default();
    let report = job.wait().await?;
    let run = watch.stop(report.balance.committed.written);
    assert_eq!(run.records, arguments.rows, "every row is written");
    Ok(run)
}

/// How long the table is locked: long enough for every queue to be full.
const LOCKED: Duration = Duration::from_secs(8);

async fn stalled(arguments: &Arguments) -> Result<Run, Box<dyn Error>> {
    reset(arguments, "four").await?;
    let client = connect(arguments).await?;
    client.batch_execute("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await?;
    let mut job = assemble(&pipeline(arguments, "four")?, Some(Until::Now))?.job;
    let watch = Stopwatch::default();
    // Nothing ever comes of the pending future: the time is the point.
    timeout(LOCKED, pending::<()>()).await.unwrap_or_default();
    client.batch_execute("COMMIT").await?;
    drop(client);
    let report = job.wait().await?;
    Ok(watch.stop(report.balance.committed.written))
}

async fn memory(arguments: &Arguments) -> Result<Run, Box<dyn Error>> {
    reset(arguments, "memory").await?;
    let pipeline = pipeline(arguments, "memory")?;
    let split = SplitId::new("memory", 0);
    let batches = decoded(arguments.rows, &split)?;

    let mut sink = PostgresSink::new(sink_config(&pipeline.sink)?);
    sink.open(SinkContext { job: pipeline.name.clone(), subtask: 0, parallelism: 1 }).await?;
    sink.claim(&assignment(&split)).await?;
    let watch = Stopwatch::default();
    let mut written = 0;
    let mut positions = Positions::new();
    for (batch, next) in batches {
        sink.write(batch).await?;
        positions.set(split.clone(), Position::at(next));
        if sink.pending().rows >= pipeline.commit.max_rows || next == arguments.rows {
            written += sink.commit(&positions).await?.written;
        }
    }
    let run = watch.stop(written);
    sink.close().await;
    assert_eq!(run.records, arguments.rows, "every row is written");
    Ok(run)
}

fn assignment(split: &SplitId) -> Assignment {
    let start = SplitStart { index: split.index, start: Position::at(0), earliest: Position::at(0) };
    Assignment {
        splits: vec![split.clone()],
        streams: vec![StreamStart {
            stream: Arc::clone(&split.stream),
            id: StreamId("memory".into()),
            splits: vec![start],
        }],
        ends: Positions::new(),
    }
}

/// A batch and the position behind it.
type Decoded = (Batch<Keyed>, u64);

/// Decodes all rows ahead of time, in batches as the source makes them; each with the position behind it.
fn decoded(rows: u64, split: &SplitId) -> Result<Vec<Decoded>, Box<dyn Error>> {
    let mut json = JsonDecoder::new(JsonLimits::default());
    let key_shape = Shape::new(["id"]);
    let mut batches = Vec::new();
    for first in (0..rows).step_by(BATCH as usize) {
        let end = (first + BATCH).min(rows);
        let mut builder = BatchBuilder::new();
        let number = builder.split(split);
        for offset in first..end {
            let value = load::row(offset);
            builder.push(number, RawRecord { offset, value: Some(value.as_bytes()), ..RawRecord::default() });
        }
        let (batch, _) = builder.finish();
        let mut records = Vec::with_capacity(batch.len());
        for record in batch.records() {
            let row = json.decode_row(&batch.value_slice(&record.origin).ok_or("no value")?)?;
            let key = Row::new(Arc::clone(&key_shape), vec![row.get("id").ok_or("no id")?.clone()]);
            let item = Keyed { key: Some(key), change: Change::Upsert(row) };
            records.push(Record { origin: record.origin, item });
        }
        batches.push((batch.parts().with_records(records), end));
    }
    Ok(batches)
}
