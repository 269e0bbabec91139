//! The sink keeps the promises of its template, on a real Postgres; rows are read back by `psql`.

use levada_conformance::{AtomicTarget, Histories};
use levada_core::{BoxError, Change, Keyed, Row, Shape, Value};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresSink, PostgresSinkConfig, WriteMode};
use levada_testcontainers::{Database, Postgres};

struct Table {
    database: Database,
    mode: WriteMode,
}

impl Table {
    fn new(mode: WriteMode, ddl: &str) -> Self {
        let database = Postgres::database().expect("a database");
        database.psql(ddl).expect("a table");
        Self { database, mode }
    }

    /// A table without a key, in which each repetition would show.
    fn insert() -> Self {
        Self::new(WriteMode::Insert, "create table numbers (number bigint)")
    }

    fn upsert() -> Self {
        Self::new(WriteMode::Upsert, "create table numbers (number bigint primary key)")
    }
}

fn row(number: u64) -> Row {
    Row::new(Shape::new(["number"]), vec![Value::Number(number.to_string().as_str().into())])
}

impl AtomicTarget for Table {
    type Item = Keyed;
    type Sink = PostgresSink;

    fn sinks(&self, count: u32) -> Vec<PostgresSink> {
        let table = TableName::new("numbers").expect("a name");
        let config = PostgresSinkConfig::from_url(self.database.url(), table, self.mode).expect("a URL");
        let config = match self.mode {
            WriteMode::Upsert => config.key(["number"]),
            _ => config,
        };
        (0..count).map(|_| PostgresSink::new(config.clone())).collect()
    }

    fn item(&self, number: u64) -> Keyed {
        let key = matches!(self.mode, WriteMode::Upsert).then(|| row(number));
        Keyed { key, change: Change::Upsert(row(number)) }
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        let text = self.database.psql("select number from numbers")?;
        Ok(text.lines().map(str::parse).collect::<Result<_, _>>()?)
    }

    // Each process of a history connects anew.
    fn histories(&self) -> Histories {
        Histories::count(20)
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
