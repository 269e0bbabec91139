//! The part of the pipeline file about the Postgres sink.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use levada_postgres::quote::{Identifier, TableName};
use levada_postgres::sink::{PostgresSinkConfig, WriteMode};

use super::fields::Field;
use super::key::{KeyFrom, key};

/// The Postgres sink.
#[derive(Clone)]
pub struct PostgresPart {
    /// Connection URL or `key=value` string, with its secrets.
    pub url: String,
    /// The table's schema; without one the connection's search path decides.
    pub schema: Option<String>,
    /// The table. A dot is part of the name.
    pub table: String,
    /// How rows are written.
    pub mode: TableMode,
    /// Where the key comes from; `None` for inserts without a key.
    pub key: Option<KeyFrom>,
    /// What a tombstone does.
    pub tombstones: Tombstones,
    /// What only the user can know about columns.
    pub columns: BTreeMap<String, ColumnPart>,
    /// How long one statement may take.
    pub statement_timeout: Option<Duration>,
    /// How long one statement may wait for a lock.
    pub lock_timeout: Option<Duration>,
}

// The URL may hold a password.
impl fmt::Debug for PostgresPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresPart")
            .field("table", &self.table)
            .field("mode", &self.mode)
            .field("key", &self.key)
            .field("tombstones", &self.tombstones)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// What only the user can know about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColumnPart {
    /// What integers in a column of dates or times count.
    pub unit: Option<Unit>,
    /// Whether a time without an offset is UTC.
    pub assume_utc: bool,
    /// Whether text goes into a JSON column as a string instead of as a document.
    pub text_is_json_string: bool,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableMode {
    /// One row a key; the last change wins.
    Upsert,
    /// One row a record.
    Insert,
}

/// What a tombstone does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tombstones {
    /// Nothing; counted as ignored.
    Ignore,
    /// It deletes the row of its key.
    Delete,
}

/// The unit of an integer that stands for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

/// The words for units.
pub(super) const UNITS: [(&str, Unit); 4] =
    [("s", Unit::Seconds), ("ms", Unit::Millis), ("us", Unit::Micros), ("ns", Unit::Nanos)];

pub(super) fn sink(field: &Field<'_>) -> Option<PostgresPart> {
    let section = field.section()?;
    let postgres = section.required("postgres", "a section").and_then(|field| postgres(&field));
    section.finish();
    postgres
}

fn postgres(field: &Field<'_>) -> Option<PostgresPart> {
    let section = field.section()?;
    let url =
        section.required("url", "postgres://user:password@host:port/database").and_then(|field| url(&field));
    let table = section.required("table", "a table").and_then(|field| identifier(&field));
    let modes = [("upsert", TableMode::Upsert), ("insert", TableMode::Insert)];
    let mode = section.optional("mode").map_or(Some(TableMode::Upsert), |field| field.choice(&modes));
    let key_field = section.optional("key");
    let key = key_field.as_ref().map(key);
    let policies = [("ignore", Tombstones::Ignore), ("delete", Tombstones::Delete)];
    let tombstones_field = section.optional("tombstones");
    let tombstones =
        tombstones_field.as_ref().map_or(Some(Tombstones::Ignore), |field| field.choice(&policies));
    let schema = section.optional("schema").map(|field| identifier(&field));
    let columns = section.optional("columns").map_or_else(|| Some(BTreeMap::new()), |field| columns(&field));
    let statement_timeout = section.optional("statement_timeout").map(|field| field.duration());
    let lock_timeout = section.optional("lock_timeout").map(|field| field.duration());

    if mode == Some(TableMode::Upsert) && key_field.is_none() {
        field.error("upsert needs \"key\": the columns that make a row the same row");
    }
    let deletes = tombstones_field.as_ref().filter(|_| tombstones == Some(Tombstones::Delete));
    if let Some(field) = deletes.filter(|_| mode == Some(TableMode::Insert)) {
        field.error("\"delete\" needs \"mode: upsert\": plain inserts have no row to delete");
    }
    if let (Some(field), Some(Some(KeyFrom::Value { .. } | KeyFrom::Coordinates { .. }))) = (deletes, &key) {
        field.error(
            "\"delete\" needs a key from record_key or headers: a tombstone has no value to take it from",
        );
    }
    section.finish();
    Some(PostgresPart {
        url: url?,
        schema: schema.flatten(),
        table: table?,
        mode: mode?,
        key: match key {
            Some(key) => Some(key?),
            None => None,
        },
        tombstones: tombstones?,
        columns: columns?,
        statement_timeout: statement_timeout.flatten(),
        lock_timeout: lock_timeout.flatten(),
    })
}

/// Reads a connection string. The message repeats no part of it.
pub(super) fn url(field: &Field<'_>) -> Option<String> {
    let url = field.name()?;
    let any = TableName::new("any").ok()?;
    if let Err(error) = PostgresSinkConfig::from_url(&url, any, WriteMode::Insert) {
        field.error(error.to_string());
    }
    Some(url)
}

pub(super) fn identifier(field: &Field<'_>) -> Option<String> {
    let name = field.name()?;
    if let Err(error) = Identifier::new(name.as_str()) {
        field.error(error.to_string());
    }
    Some(name)
}

fn columns(field: &Field<'_>) -> Option<BTreeMap<String, ColumnPart>> {
    let read = |(name, field): (&str, Field<'_>)| {
        let section = field.section()?;
        let unit = section.optional("unit").map(|field| field.choice(&UNITS));
        let assume_utc = section.optional("assume_utc").map_or(Some(false), |field| field.flag());
        let json_string = section.optional("text_is_json_string").map_or(Some(false), |field| field.flag());
        section.finish();
        let (assume_utc, text_is_json_string) = (assume_utc?, json_string?);
        Some((name.to_owned(), ColumnPart { unit: unit.flatten(), assume_utc, text_is_json_string }))
    };
    let entries: Vec<_> = field.section()?.all().map(read).collect();
    entries.into_iter().collect()
}
