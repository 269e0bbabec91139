//! The sinks keep the promises of their templates, on a real Postgres; rows are read back by `psql`.

use levada_conformance::{AtomicTarget, Histories, IdempotentTarget, WriteAheadTarget};
use levada_core::{BoxError, Change, Keyed, Row, Shape, Value};
use levada_postgres::quote::TableName;
use levada_postgres::{
    PostgresCommitter, PostgresSink, PostgresSinkConfig, PostgresUpsert, PostgresWriteAhead, Tombstone,
    WriteMode,
};
use levada_testcontainers::{Database, Postgres};

/// Each process of a history connects anew.
const HISTORIES: u64 = 20;

struct Table {
    database: Database,
    mode: WriteMode,
}

impl Table {
    fn new(mode: WriteMode, columns: &str) -> Self {
        let database = Postgres::database().expect("a database");
        database.psql(&format!("create table numbers ({columns})")).expect("a table");
        Self { database, mode }
    }

    /// A table without a key, in which each repetition would show, and which tells the order.
    fn insert() -> Self {
        Self::new(WriteMode::Insert, "place bigserial, number bigint")
    }

    fn upsert() -> Self {
        Self::new(WriteMode::Upsert, "place bigserial, number bigint primary key, version bigint")
    }

    fn config(&self) -> PostgresSinkConfig {
        let table = TableName::new("numbers").expect("a name");
        let config = PostgresSinkConfig::from_url(self.database.url(), table, self.mode).expect("a URL");
        match self.mode {
            WriteMode::Upsert => config.key(["number"]).tombstones(Tombstone::Delete),
            _ => config,
        }
    }

    fn record(&self, number: u64) -> Keyed {
        let row = row(&[("number", number)]);
        let key = matches!(self.mode, WriteMode::Upsert).then(|| row.clone());
        Keyed { key, change: Change::Upsert(row) }
    }

    fn numbers(&self) -> Result<Vec<u64>, BoxError> {
        let text = self.database.psql("select number from numbers order by place")?;
        Ok(text.lines().map(str::parse).collect::<Result<_, _>>()?)
    }
}

fn row(fields: &[(&str, u64)]) -> Row {
    let value = |number: u64| Value::Number(number.to_string().as_str().into());
    let shape = Shape::new(fields.iter().map(|(name, _)| *name));
    Row::new(shape, fields.iter().map(|(_, number)| value(*number)).collect())
}

impl AtomicTarget for Table {
    type Item = Keyed;
    type Sink = PostgresSink;

    fn sinks(&self, count: u32) -> Vec<PostgresSink> {
        let config = self.config();
        (0..count).map(|_| PostgresSink::new(config.clone())).collect()
    }

    fn item(&self, number: u64) -> Keyed {
        self.record(number)
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        self.numbers()
    }

    fn histories(&self) -> Histories {
        Histories::count(HISTORIES)
    }
}

impl WriteAheadTarget for Table {
    type Item = Keyed;
    type Sink = PostgresWriteAhead;
    type Committer = PostgresCommitter;

    fn sinks(&self, count: u32) -> Vec<(PostgresWriteAhead, PostgresCommitter)> {
        (0..count).map(|_| PostgresWriteAhead::with_committer(self.config())).collect()
    }

    fn item(&self, number: u64) -> Keyed {
        self.record(number)
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        self.numbers()
    }

    fn histories(&self) -> Histories {
        Histories::count(HISTORIES)
    }
}

impl IdempotentTarget for Table {
    type Item = Keyed;
    type Sink = PostgresUpsert;

    fn sinks(&self, count: u32) -> Vec<PostgresUpsert> {
        (0..count).map(|_| PostgresUpsert::new(self.config())).collect()
    }

    fn item(&self, key: u64, version: u64) -> Keyed {
        let change = Change::Upsert(row(&[("version", version)]));
        Keyed { key: Some(row(&[("number", key)])), change }
    }

    fn deletion(&self, key: u64) -> Option<Keyed> {
        Some(Keyed { key: Some(row(&[("number", key)])), change: Change::Delete })
    }

    async fn rows(&self) -> Result<Vec<(u64, u64)>, BoxError> {
        let text = self.database.psql("select number || ' ' || version from numbers")?;
        let row = |line: &str| -> Result<(u64, u64), BoxError> {
            let (key, version) = line.split_once(' ').ok_or("a row has two columns")?;
            Ok((key.parse()?, version.parse()?))
        };
        text.lines().map(row).collect()
    }

    fn histories(&self) -> Histories {
        Histories::count(HISTORIES)
    }
}

/// [TPL-17] [TPL-18]
mod atomic_insert {
    levada_conformance::atomic_tests!(crate::Table::insert());
}

/// [TPL-17] [TPL-18]
mod atomic_upsert {
    levada_conformance::atomic_tests!(crate::Table::upsert());
}

/// [TPL-07] [TPL-08] [TPL-18] the committer shares the sink's transaction: exactly once.
mod write_ahead {
    levada_conformance::write_ahead_tests!(crate::Table::insert());
}

/// [TPL-05] [TPL-18]
mod idempotent {
    levada_conformance::idempotent_tests!(crate::Table::upsert());
}
