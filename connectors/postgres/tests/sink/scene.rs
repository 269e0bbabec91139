//! A database of one's own, a table in it, and sinks that write there.

use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, AtomicSink, Batch, BatchBuilder, Change, Committed, Keyed, Position, Positions, Row, Shape,
    Sink, SinkContext, SinkError, SplitId, SplitStart, StreamId, StreamStart, Value,
};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSink, PostgresSinkConfig, WriteMode};
use levada_testcontainers::{Database, Postgres};

pub(crate) const JOB: &str = "job";
pub(crate) const STREAM: &str = "orders";

pub(crate) struct Scene {
    pub(crate) database: Database,
}

impl Scene {
    /// Makes a database and runs `sql` in it.
    pub(crate) fn new(sql: &str) -> Self {
        let database = Postgres::database().expect("a database");
        database.psql(sql).expect("the scene's SQL");
        Self { database }
    }

    pub(crate) fn upsert(&self, table: &str) -> PostgresSinkConfig {
        config(self.database.url(), table, WriteMode::Upsert)
    }

    pub(crate) fn insert(&self, table: &str) -> PostgresSinkConfig {
        config(self.database.url(), table, WriteMode::Insert)
    }

    /// Reads through another client: rows by line, columns by `|`.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        let text = self.database.psql(sql).expect("a query");
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn row(&self, sql: &str) -> String {
        self.rows(sql).join("\n")
    }

    /// Reads from another thread, as long as the scene lives.
    pub(crate) fn watching(&self) -> impl Fn(&str) -> String + Send + 'static {
        let url = self.database.url().to_owned();
        move |sql| {
            let output =
                std::process::Command::new("psql").args(["-Atqc", sql, &url]).output().expect("psql");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
    }

    /// Ends the backends of an application in this database.
    pub(crate) fn end_backends(&self, application_name: &str) {
        let sql = format!(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity
             where datname = current_database() and application_name = '{application_name}'"
        );
        assert!(self.rows(&sql).contains(&"t".to_owned()), "a backend to end");
    }
}

pub(crate) fn config(url: &str, table: &str, mode: WriteMode) -> PostgresSinkConfig {
    PostgresSinkConfig::from_url(url, TableName::new(table).expect("a name"), mode).expect("a URL")
}

pub(crate) fn split(index: u32) -> SplitId {
    SplitId::new(STREAM, index)
}

/// All splits of the stream, each starting at 0.
pub(crate) fn assignment(splits: u32) -> Assignment {
    assignment_of(0..splits, splits)
}

/// Some splits of a stream that has `all`.
pub(crate) fn assignment_of(splits: impl IntoIterator<Item = u32>, all: u32) -> Assignment {
    let start = |index| SplitStart { index, start: Position::at(0), earliest: Position::at(0) };
    Assignment {
        splits: splits.into_iter().map(split).collect(),
        streams: vec![StreamStart {
            stream: STREAM.into(),
            id: StreamId("cluster/1".into()),
            splits: (0..all).map(start).collect(),
        }],
        ..Assignment::default()
    }
}

pub(crate) fn context() -> SinkContext {
    SinkContext { job: JOB.to_owned(), subtask: 0, parallelism: 1 }
}

pub(crate) async fn opened(config: PostgresSinkConfig) -> PostgresSink {
    let mut sink = PostgresSink::new(config);
    sink.open(context()).await.expect("open");
    sink
}

/// Opens and claims split 0.
pub(crate) async fn ready(config: PostgresSinkConfig) -> PostgresSink {
    let mut sink = opened(config).await;
    sink.claim(&assignment(1)).await.expect("claim");
    sink
}

pub(crate) fn row(fields: &[(&str, Value)]) -> Row {
    let shape = Shape::new(fields.iter().map(|(name, _)| *name));
    Row::new(shape, fields.iter().map(|(_, value)| value.clone()).collect())
}

pub(crate) fn upsert(key: &[(&str, Value)], fields: &[(&str, Value)]) -> Keyed {
    Keyed { key: Some(row(key)), change: Change::Upsert(row(fields)) }
}

pub(crate) fn keyless(fields: &[(&str, Value)]) -> Keyed {
    Keyed { key: None, change: Change::Upsert(row(fields)) }
}

pub(crate) fn delete(key: &[(&str, Value)]) -> Keyed {
    Keyed { key: Some(row(key)), change: Change::Delete }
}

pub(crate) fn number(text: &str) -> Value {
    Value::Number(text.into())
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// A batch of split 0 whose records start at `offset`, and the position behind it.
pub(crate) fn batch(offset: u64, changes: Vec<Keyed>) -> (Batch<Keyed>, Positions) {
    batch_of(0, offset, changes)
}

pub(crate) fn batch_of(index: u32, offset: u64, changes: Vec<Keyed>) -> (Batch<Keyed>, Positions) {
    let mut builder = BatchBuilder::new();
    let number = builder.split(&split(index));
    for place in 0..changes.len() as u64 {
        builder.push(number, RawRecord { offset: offset + place, ..RawRecord::default() });
    }
    let (raw, positions) = builder.finish();
    let (parts, records) = raw.into_parts();
    let records = records
        .into_iter()
        .zip(changes)
        .map(|(record, item)| levada_core::Record { origin: record.origin, item })
        .collect();
    (parts.with_records(records), positions)
}

/// Writes and commits one batch of split 0.
pub(crate) async fn send(
    sink: &mut PostgresSink,
    offset: u64,
    changes: Vec<Keyed>,
) -> Result<Committed, SinkError> {
    let (batch, positions) = batch(offset, changes);
    sink.write(batch).await?;
    sink.commit(&positions).await
}

/// Waits for a condition without blocking the runtime.
pub(crate) async fn until(what: &str, condition: impl FnMut() -> bool + Send + 'static) {
    let what = what.to_owned();
    tokio::task::spawn_blocking(move || {
        levada_testcontainers::wait_until(Duration::from_secs(30), &what, condition).expect("in time");
    })
    .await
    .expect("the waiting thread");
}

/// Connects as somebody else.
pub(crate) async fn connect(url: &str, application_name: &str) -> tokio_postgres::Client {
    let mut config: tokio_postgres::Config = url.parse().expect("a URL");
    config.application_name(application_name);
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

pub(crate) fn chain(error: &SinkError) -> String {
    levada_core::ErrorChain(error).to_string()
}
