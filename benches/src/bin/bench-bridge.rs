//! The whole bridge against its own writing half fed from memory: what reading and decoding cost on top of writing.
//!
//! One partition of 1 M JSON rows of about 200 bytes and 7 columns, one connection, upserts into an empty table. Beside
//! it, the same rows from 4 partitions by 4 subtasks: with the processor time of client, broker and Postgres, and with the
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
use measure::{Run, Stopwatch};
use tokio::time::timeout;
use tokio_postgres::NoTls;

#[derive(Parser)]
struct Arguments {
    /// Rows in each topic.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Runs of each variant.
    #[arg(long, default_value_t = 5)]
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
        Some(topic) => {
            let partitions = if topic == "four" { 4 } else { 1 };
            let run = runtime.block_on(bridge(&arguments, topic, partitions))?;
            println!("{}", serde_json::to_string(&run)?);
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
    let runs = measure::alternate(&["one", "memory"], arguments.rounds, &passed_on)?;
    let servers = || (measure::cpu_of_tree(kafka.broker(1).pid()), measure::cpu_of_tree(postgres.pid()));
    let before = servers();
    let four = measure::alternate(&["four"], arguments.rounds, &passed_on)?;
    let after = servers();
    let stalled = measure::alternate(&["stalled"], 1, &passed_on)?;

    let ratio = measure::median(&runs["one"], Run::rate) / measure::median(&runs["memory"], Run::rate);
    let per_million = |seconds: f64| {
        let millions = (arguments.rows as usize * arguments.rounds) as f64 / 1e6;
        (seconds / millions * 1000.0).round() / 1000.0
    };
    println!(
        "{}",
        serde_json::json!({
            "name": "bridge",
            "ratio": (ratio * 1000.0).round() / 1000.0,
            "bridge": measure::summary(&runs["one"]),
            "memory": measure::summary(&runs["memory"]),
            "four_partitions": {
                "bridge": measure::summary(&four["four"]),
                "peak_mib_with_the_table_locked": stalled["stalled"][0].peak_mib.round(),
                "cpu_s_per_million": {
                    "client": (measure::median(&four["four"], Run::cpu_per_million) * 1000.0).round() / 1000.0,
                    "broker": per_million(after.0 - before.0),
                    "postgres": per_million(after.1 - before.1),
                },
            },
        })
    );
    Ok(())
}

fn pipeline(arguments: &Arguments, topic: &str, parallelism: u32) -> Result<Pipeline, Box<dyn Error>> {
    let text = format!(
        "name: bench-{topic}\n\
         parallelism: {parallelism}\n\
         source:\n  kafka: {{brokers: \"{}\", topics: {topic}, format: json}}\n\
         sink:\n  postgres:\n    url: \"{}\"\n    table: orders\n    key: {{from: value, columns: id}}\n",
        arguments.brokers, arguments.postgres
    );
    Ok(config::parse("bench.yaml".as_ref(), &text)?)
}

/// Empties the table and forgets the positions of earlier runs.
async fn reset(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(&arguments.postgres, NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute(load::TABLE).await?;
    client.batch_execute("TRUNCATE orders; DROP SCHEMA IF EXISTS levada CASCADE").await?;
    client.batch_execute("CHECKPOINT").await?;
    drop(client);
    connection.await??;
    Ok(())
}

async fn bridge(arguments: &Arguments, topic: &str, parallelism: u32) -> Result<Run, Box<dyn Error>> {
    reset(arguments).await?;
    let mut job = assemble(&pipeline(arguments, topic, parallelism)?, Some(Until::Now))?.job;
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
    reset(arguments).await?;
    let (client, connection) = tokio_postgres::connect(&arguments.postgres, NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await?;
    let mut job = assemble(&pipeline(arguments, "four", 4)?, Some(Until::Now))?.job;
    let watch = Stopwatch::default();
    // Nothing ever comes of the pending future: the time is the point.
    timeout(LOCKED, pending::<()>()).await.unwrap_or_default();
    client.batch_execute("COMMIT").await?;
    drop(client);
    connection.await??;
    let report = job.wait().await?;
    Ok(watch.stop(report.balance.committed.written))
}

async fn memory(arguments: &Arguments) -> Result<Run, Box<dyn Error>> {
    reset(arguments).await?;
    let pipeline = pipeline(arguments, "memory", 1)?;
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
