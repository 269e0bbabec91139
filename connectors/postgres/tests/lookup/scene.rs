//! A database of one's own with tables to look up in.

use std::time::Duration;

use levada_core::Value;
use levada_postgres::lookup::{Found, LookupError};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresLookup, PostgresLookupConfig};
use levada_testcontainers::{Database, Postgres};

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

    /// A lookup in a table, with everything else by default.
    pub(crate) fn table(&self, table: &str, key: &[&str]) -> PostgresLookupConfig {
        by_table(self.database.url(), table, key)
    }

    pub(crate) fn query(&self, sql: &str) -> PostgresLookupConfig {
        PostgresLookupConfig::by_query(self.database.url().parse().expect("a URL"), sql)
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.database.psql(sql).expect("a statement").trim().to_owned()
    }

    /// Reads from another thread, as long as the scene lives.
    pub(crate) fn watching(&self) -> impl Fn(&str) -> String + Send + Clone + 'static {
        watching(self.database.url())
    }
}

pub(crate) fn watching(url: &str) -> impl Fn(&str) -> String + Send + Clone + 'static {
    let url = url.to_owned();
    move |sql| {
        let output = std::process::Command::new("psql").args(["-Atqc", sql, &url]).output().expect("psql");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

pub(crate) fn by_table(url: &str, table: &str, key: &[&str]) -> PostgresLookupConfig {
    let table = TableName::new(table).expect("a name");
    PostgresLookupConfig::by_table(url.parse().expect("a URL"), table, key.iter().copied())
}

pub(crate) async fn open(config: PostgresLookupConfig) -> PostgresLookup {
    PostgresLookup::open(config).await.expect("an open lookup")
}

pub(crate) fn int(number: i64) -> Value {
    Value::Int(number)
}

pub(crate) fn number(text: &str) -> Value {
    Value::Number(text.into())
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// Shows the rows found, columns by `|`.
pub(crate) fn shown(found: &Result<Found, LookupError>) -> Vec<String> {
    let rows = found.as_ref().expect("an answer");
    let show = |value: &Value| match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Number(text) | Value::Text(text) => text.as_str().to_owned(),
        other => format!("{other:?}"),
    };
    rows.iter().map(|row| row.values().iter().map(show).collect::<Vec<_>>().join("|")).collect()
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
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}
