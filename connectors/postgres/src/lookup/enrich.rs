//! What becomes of a record and the rows that it has found.

use std::sync::Arc;
use std::time::Duration;

use levada_core::{Row, Shape, Value};

use crate::sink::backoff::pause;

use super::{Found, LookupError, PostgresLookup};

/// How the rows of a key join the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Join {
    /// One output for each row, with the row's fields behind the record's.
    #[default]
    Rows,
    /// One output, with all rows as a list in one field of the lookup's name.
    Array,
}

/// What becomes of a record that finds no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Miss {
    /// It goes on with null in the row's fields, or an empty list: a left join.
    #[default]
    NullColumns,
    /// It goes no further: an inner join.
    Drop,
    /// It is refused, for the dead letters.
    DeadLetter,
    /// The row may arrive later: it is looked up again after `delay`, at most `attempts` times.
    Retry {
        /// How long it waits each time.
        delay: Duration,
        /// How often it is looked up again.
        attempts: u32,
        /// What becomes of it then.
        then: LastMiss,
    },
}

/// What becomes of a record when it was looked up often enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LastMiss {
    /// As [`Miss::NullColumns`].
    #[default]
    NullColumns,
    /// As [`Miss::Drop`].
    Drop,
    /// As [`Miss::DeadLetter`].
    DeadLetter,
}

/// What a record has become.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Enriched {
    /// Outputs in the order of the rows found.
    Rows(Vec<Row>),
    /// It found no row and goes no further.
    Dropped,
    /// It found no row and is refused.
    Refused,
}

/// Joins records with what they find.
#[derive(Debug, Clone)]
pub struct Enrichment {
    lookup: PostgresLookup,
    /// Goes before the names of the row's fields; the name of the list for [`Join::Array`].
    name: String,
    join: Join,
    miss: Miss,
}

impl Enrichment {
    /// Puts the fields of the rows found behind a record's own, each under `name`, an underscore and its column.
    pub fn new(lookup: PostgresLookup, name: impl Into<String>) -> Self {
        Self { lookup, name: name.into(), join: Join::default(), miss: Miss::default() }
    }

    /// Sets how rows join the record.
    #[must_use]
    pub fn join(mut self, join: Join) -> Self {
        self.join = join;
        self
    }

    /// Sets what becomes of a record without a match.
    #[must_use]
    pub fn on_miss(mut self, miss: Miss) -> Self {
        self.miss = miss;
        self
    }

    /// Looks a record's key up and joins it. A repeated lookup passes by what is kept.
    ///
    /// # Errors
    /// The lookup failed; that is no miss.
    pub async fn enrich(&self, record: &Row, key: &[Value]) -> Result<Enriched, LookupError> {
        let mut found = self.lookup.get(key).await?;
        if let Miss::Retry { delay, attempts, .. } = self.miss {
            // A NULL matches nothing, however long it waits.
            let may_come = !key.iter().any(|part| matches!(part, Value::Null));
            let mut left = if may_come { attempts } else { 0 };
            while found.is_empty() && left > 0 {
                pause(delay).await;
                self.lookup.shared.forget(key)?;
                found = self.lookup.get(key).await?;
                left -= 1;
            }
        }
        Ok(self.joined(record, &found))
    }

    /// Joins a record with what it has found, for those who look up by themselves. A miss that would be looked up again
    /// counts as the last one.
    pub fn joined(&self, record: &Row, found: &Found) -> Enriched {
        let last = match self.miss {
            Miss::NullColumns => LastMiss::NullColumns,
            Miss::Drop => LastMiss::Drop,
            Miss::DeadLetter => LastMiss::DeadLetter,
            Miss::Retry { then, .. } => then,
        };
        match (found.is_empty(), last) {
            (true, LastMiss::Drop) => Enriched::Dropped,
            (true, LastMiss::DeadLetter) => Enriched::Refused,
            _ => Enriched::Rows(self.outputs(record, found)),
        }
    }

    fn outputs(&self, record: &Row, found: &Found) -> Vec<Row> {
        let columns = &self.lookup.shared.tower.plan.shape;
        let own = record.shape().names().iter().map(|name| name.to_string());
        if self.join == Join::Array {
            let shape = Shape::new(own.chain([self.name.clone()]));
            let list = found.iter().map(|row| Value::Row(Box::new(row.clone()))).collect();
            return vec![with(record, &shape, [Value::List(list)])];
        }
        let shape = Shape::new(own.chain(columns.names().iter().map(|name| format!("{}_{name}", self.name))));
        if found.is_empty() {
            return vec![with(record, &shape, columns.names().iter().map(|_| Value::Null))];
        }
        found.iter().map(|row| with(record, &shape, row.values().iter().cloned())).collect()
    }
}

fn with(record: &Row, shape: &Arc<Shape>, more: impl IntoIterator<Item = Value>) -> Row {
    Row::new(Arc::clone(shape), record.values().iter().cloned().chain(more).collect())
}
