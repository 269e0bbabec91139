//! How often each key is in a table.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter, Write as _};

use super::exactly_once::{Counts, Verdict};
use crate::postgres::quoted;
use crate::{Database, Error, Postgres, SharedPostgres};

/// A Postgres server or database that answers SQL through `psql`: all handles of this crate do.
pub trait Psql {
    /// Runs SQL and returns the rows: one per line, columns separated by `|`, without headers.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the server's message when a statement fails.
    fn psql(&self, sql: &str) -> Result<String, Error>;
}

impl Psql for Postgres {
    fn psql(&self, sql: &str) -> Result<String, Error> {
        Postgres::psql(self, sql)
    }
}

impl Psql for SharedPostgres {
    fn psql(&self, sql: &str) -> Result<String, Error> {
        SharedPostgres::psql(self, sql)
    }
}

impl Psql for Database {
    fn psql(&self, sql: &str) -> Result<String, Error> {
        Database::psql(self, sql)
    }
}

/// Why the keys of a table are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A table without a name or a key without columns was asked for.
    #[error("a table needs a name and its key at least one column")]
    Unnamed,
    /// The server did not answer the query.
    #[error("cannot count the keys of {table}")]
    Query {
        /// The table, quoted.
        table: String,
        /// What psql said.
        source: Error,
    },
    /// The answer is not what the query asks for.
    #[error("psql's answer about {table} is not understood: {line:?}")]
    Answer {
        /// The table, quoted.
        table: String,
        /// The line that is not understood.
        line: String,
    },
}

/// Counts the rows of a table by their key.
///
/// `table` is its name, or schema and name; `columns` are those of the key. Names are taken as they are, quotes, capital
/// letters and all. Values are compared as the text that Postgres prints of them, so `1.0` and `1.00` are two keys.
///
/// # Errors
///
/// [`TableError`], when the table cannot be read.
///
/// ```no_run
/// use levada_testcontainers::{Postgres, oracle::{self, Key}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Postgres::database()?;
/// // ... the program under test fills the table ...
/// let sent = (0..1000).map(Key::from);
/// oracle::table(&database, &["orders"], &["id"])?.exactly_once(sent)?;
/// # Ok(())
/// # }
/// ```
pub fn table(database: &impl Psql, table: &[&str], columns: &[&str]) -> Result<RowCounts, TableError> {
    if table.is_empty() || columns.is_empty() {
        return Err(TableError::Unnamed);
    }
    let name = table.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".");
    match database.psql(&query(&name, columns)) {
        Ok(answer) => {
            row_counts(&answer, columns.len()).map_err(|line| TableError::Answer { table: name, line })
        }
        Err(source) => Err(TableError::Query { table: name, source }),
    }
}

/// Returns the query: a count, then each column of the key as `-` for NULL, else `+` and its text in hexadecimal digits,
/// which holds neither psql's separators nor its line ends.
fn query(table: &str, columns: &[&str]) -> String {
    let mut selected = String::from("count(*)");
    let mut places = String::new();
    for (place, column) in columns.iter().enumerate() {
        let column = quoted(column);
        let text = format!("'+' || encode(convert_to(key_of.{column}::text, 'UTF8'), 'hex')");
        // Writing to a string does not fail.
        let _ = write!(selected, ", CASE WHEN key_of.{column} IS NULL THEN '-' ELSE {text} END");
        let separator = if place == 0 { "" } else { ", " };
        let _ = write!(places, "{separator}{}", place + 2);
    }
    // By the places of the texts, not by the columns: a column's own equality may take two texts for one.
    format!("SELECT {selected} FROM {table} AS key_of GROUP BY {places}")
}

/// Reads the answer; the error is the line that is not understood.
fn row_counts(answer: &str, columns: usize) -> Result<RowCounts, String> {
    let mut counts = BTreeMap::new();
    for line in answer.lines() {
        let (key, count) = row(line, columns).ok_or(line)?;
        if counts.insert(key, count).is_some() {
            return Err(line.to_owned());
        }
    }
    Ok(RowCounts { counts })
}

fn row(line: &str, columns: usize) -> Option<(Key, u64)> {
    let mut fields = line.split('|');
    let count = fields.next()?.parse().ok()?;
    let key = fields.map(column).collect::<Option<Vec<_>>>()?;
    (key.len() == columns).then_some((Key(key), count))
}

/// Reads one column of a key; the outer option tells whether it is understood, the inner one is NULL.
fn column(field: &str) -> Option<Option<String>> {
    if field == "-" {
        return Some(None);
    }
    let digits = field.strip_prefix('+')?;
    if digits.len() % 2 != 0 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |place| u8::from_str_radix(&digits[place..place + 2], 16).ok();
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<_>>>()?;
    Some(Some(String::from_utf8(bytes).ok()?))
}

/// The key of a row: the text of each column, `None` for NULL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vec<Option<String>>);

impl From<&str> for Key {
    /// Makes the key of one column.
    fn from(text: &str) -> Key {
        Key(vec![Some(text.to_owned())])
    }
}

impl From<String> for Key {
    /// Makes the key of one column.
    fn from(text: String) -> Key {
        Key(vec![Some(text)])
    }
}

impl From<i64> for Key {
    /// Makes the key of one column.
    fn from(number: i64) -> Key {
        Key::from(number.to_string())
    }
}

impl<const COLUMNS: usize> From<[Option<&str>; COLUMNS]> for Key {
    /// Makes the key of several columns, `None` for NULL.
    fn from(columns: [Option<&str>; COLUMNS]) -> Key {
        Key(columns.iter().map(|column| column.map(str::to_owned)).collect())
    }
}

impl Debug for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (place, column) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            match column {
                Some(text) => write!(f, "{separator}{text:?}")?,
                None => write!(f, "{separator}NULL")?,
            }
        }
        f.write_str(")")
    }
}

/// How often each key is in a table; made by [`table()`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCounts {
    counts: BTreeMap<Key, u64>,
}

impl RowCounts {
    /// Returns the counts by key.
    #[must_use]
    pub fn by_key(&self) -> &BTreeMap<Key, u64> {
        &self.counts
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Judges whether every key is in the table as often as it was sent, and no other is.
    ///
    /// # Errors
    ///
    /// As [`exactly_once`](super::exactly_once).
    pub fn exactly_once(&self, sent: impl IntoIterator<Item = Key>) -> Result<(), Verdict<Key>> {
        self.against(sent).exactly_once()
    }

    /// Judges whether every key is in the table at least as often as it was sent, and no other is.
    ///
    /// # Errors
    ///
    /// As [`at_least_once`](super::at_least_once).
    pub fn at_least_once(&self, sent: impl IntoIterator<Item = Key>) -> Result<(), Verdict<Key>> {
        self.against(sent).at_least_once()
    }

    fn against(&self, sent: impl IntoIterator<Item = Key>) -> Counts<Key> {
        let mut counts = Counts::new();
        counts.sent(sent);
        counts.found_times(self.counts.iter().map(|(key, count)| (key.clone(), *count)));
        counts
    }
}

impl Display for RowCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, {} keys", self.rows(), self.counts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, row_counts};

    #[test]
    fn null_empty_and_text_are_three_things() {
        let counts = row_counts("1|-|+\n2|+2d|+4e554c4c", 2).unwrap();
        let keys: Vec<_> = counts.by_key().iter().collect();
        assert_eq!(keys, [(&Key::from([None, Some("")]), &1), (&Key::from([Some("-"), Some("NULL")]), &2)]);
        assert_eq!(counts.to_string(), "3 rows, 2 keys");
    }

    #[test]
    fn an_answer_of_another_shape_is_refused() {
        for answer in ["1", "x|+61", "1|61", "1|+6", "1|+zz", "1|+61|+62", "1|+ff", "1|+61\n1|+61", "1|++1"] {
            assert!(row_counts(answer, 1).is_err(), "{answer}");
        }
        assert_eq!(row_counts("", 1).unwrap().rows(), 0);
    }
}
