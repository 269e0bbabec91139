//! Measures flushes of rows of seven columns: `cargo run --release --example flush -- URL [rows per commit] [rows per statement]`.
//!
//! Prints, per row, the time that `write` and `commit` take and this process's own CPU time. Commits alternate between
//! fresh keys and keys that are there. Makes the table `flush_bench` anew, and leaves no positions behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, AtomicSink, BatchBuilder, Change, Keyed, Position, Record, Row, Shape, Sink, SinkContext,
    SplitId, SplitStart, StreamId, StreamStart, Value,
};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSink, PostgresSinkConfig, WriteMode};

fn own_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: u64 = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .flat_map(str::parse::<u64>)
        .sum();
    Duration::from_millis(ticks * 10)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the URL of a database is missing")?;
    let rows: u64 = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let rows_per_statement: usize = arguments.next().map_or(Ok(5_000), |text| text.parse())?;

    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(
            "drop table if exists flush_bench; create table flush_bench (id bigint primary key, name text, price numeric(12,2),
             seen timestamptz, day date, count int, active bool)",
        )
        .await?;

    let mut config =
        PostgresSinkConfig::from_url(&url, TableName::new("flush_bench")?, WriteMode::Upsert)?.key(["id"]);
    config.rows_per_statement = rows_per_statement;
    let mut sink = PostgresSink::new(config);
    let job = format!("flush_bench {}", std::process::id());
    sink.open(SinkContext { job: job.clone(), subtask: 0, parallelism: 1 }).await?;
    let split = SplitId::new("s", 0);
    let start = SplitStart { index: 0, start: Position::at(0), earliest: Position::at(0) };
    let streams = vec![StreamStart { stream: "s".into(), id: StreamId("1".into()), splits: vec![start] }];
    sink.claim(&Assignment { splits: vec![split.clone()], streams, ..Assignment::default() }).await?;

    let key = Shape::new(["id"]);
    let shape = Shape::new(["id", "name", "price", "seen", "day", "count", "active"]);
    let mut offset = 0;
    for round in 0..10 {
        let mut builder = BatchBuilder::new();
        let number = builder.split(&split);
        let mut changes = Vec::new();
        for n in 0..rows {
            builder.push(number, RawRecord { offset: offset + n, ..RawRecord::default() });
            // Scattered, as keys of a stream are; odd rounds repeat those of the round before.
            let id = ((round / 2 * rows + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).to_string();
            let values = vec![
                Value::Number(id.as_str().into()),
                Value::Text(format!("name {n}").into()),
                Value::Number(format!("{n}.25").into()),
                Value::Text("2024-02-29T12:34:56.789Z".into()),
                Value::Text("2024-02-29".into()),
                Value::Number(n.to_string().as_str().into()),
                Value::Bool(n % 2 == 0),
            ];
            changes.push(Keyed {
                key: Some(Row::new(Arc::clone(&key), vec![Value::Number(id.as_str().into())])),
                change: Change::Upsert(Row::new(Arc::clone(&shape), values)),
            });
        }
        offset += rows;
        let (raw, positions) = builder.finish();
        let (parts, records) = raw.into_parts();
        let records =
            records.into_iter().zip(changes).map(|(record, item)| Record { origin: record.origin, item });
        let batch = parts.with_records(records.collect());

        let (begin, cpu) = (Instant::now(), own_cpu());
        sink.write(batch).await?;
        let written = begin.elapsed();
        sink.commit(&positions).await?;
        let committed = begin.elapsed() - written;
        let cpu = own_cpu() - cpu;
        println!(
            "round {round}: write {:>5} ns/row, commit {:>6} ns/row, own CPU {:>5} ns/row, {:>7.0} rows/s",
            written.as_nanos() / u128::from(rows),
            committed.as_nanos() / u128::from(rows),
            cpu.as_nanos() / u128::from(rows),
            rows as f64 / (written + committed).as_secs_f64(),
        );
    }
    sink.close().await;
    client.execute("delete from levada.positions where pipeline = $1", &[&job]).await?;
    Ok(())
}
