//! How a sink is configured.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{ErrorClass, SinkError, WriteOrder};
use tokio::sync::Mutex;

use crate::quote::TableName;

use super::session::Limits;

/// How rows reach the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteMode {
    /// Every change is a new row; a key that is there already is a bad row.
    Insert,
    /// A change replaces the fields it has in the row of its key, or makes that row.
    Upsert,
}

impl WriteMode {
    /// A row that is only ever added replaces none.
    pub(crate) fn write_order(self) -> WriteOrder {
        match self {
            WriteMode::Insert => WriteOrder::Any,
            WriteMode::Upsert => WriteOrder::ByOwnKey,
        }
    }
}

/// What a deletion does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Tombstone {
    /// It removes the row of its key; without one that is no error.
    Delete,
    /// It is passed over and counted.
    #[default]
    Ignore,
}

/// What integers in a column of dates or times count, from 1970 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds; what is finer than microseconds is cut.
    Nanos,
}

/// What only the user can know about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ColumnOptions {
    /// What numbers count, for columns of type `date`, `timestamp` and `timestamptz`. Without it they are refused.
    pub unit: Option<EpochUnit>,
    /// Takes a time without an offset as UTC in a `timestamptz` column. Without it such a time is refused.
    pub assume_utc: bool,
    /// Stores text as a JSON string in a `json` or `jsonb` column. Without it a text must be a JSON document.
    pub text_is_json_string: bool,
}

impl ColumnOptions {
    /// Sets what numbers count.
    #[must_use]
    pub fn unit(mut self, unit: EpochUnit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Takes times without an offset as UTC.
    #[must_use]
    pub fn assume_utc(mut self) -> Self {
        self.assume_utc = true;
        self
    }

    /// Stores text as a JSON string.
    #[must_use]
    pub fn text_is_json_string(mut self) -> Self {
        self.text_is_json_string = true;
        self
    }
}

/// The number that a run draws at its first claim, and under which all its sinks claim at first.
///
/// Two processes that start in the same moment claim split by split, in any order. The one that drew the higher number
/// gets all of them, so that one goes on; by the order of claims alone each could take some, and end the other.
pub(super) type Run = Arc<Mutex<Option<i64>>>;

/// Everything a [`PostgresSink`](super::PostgresSink) is told before it is opened.
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresSinkConfig {
    /// Where to connect. `application_name` and whatever of the time limits is unset are filled in.
    pub connection: tokio_postgres::Config,
    /// The target.
    pub table: TableName,
    /// How rows reach it.
    pub mode: WriteMode,
    /// The columns of the key, in any order. May be empty for [`WriteMode::Insert`] only.
    pub key: Vec<String>,
    /// What deletions do.
    pub tombstones: Tombstone,
    /// Options by column name, as it is in the catalog.
    pub columns: BTreeMap<String, ColumnOptions>,
    /// Who this is, for others to read in the positions table: host and process.
    pub owner: String,
    /// How long a statement may run before it is tried again.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a lock before it is tried again.
    pub lock_timeout: Duration,
    /// How long the server lets a transaction wait for us: the bound on what a stopped owner blocks.
    pub idle_in_transaction_session_timeout: Duration,
    /// How long `open` waits for a server that is away.
    pub open_timeout: Duration,
    /// How long a claim waits for whoever holds the positions, after which it fails and names him.
    pub claim_timeout: Duration,
    /// How long a claim waits before it looks who is in its way.
    pub claim_patience: Duration,
    /// How often a flush is tried again after a deadlock, a serialization failure or a timeout.
    pub max_retries: usize,
    /// The longest pause between attempts to connect.
    pub reconnect_pause: Duration,
    /// The number of this run. Clones share it: the subtasks of a process are one run.
    pub(super) run: Run,
    /// How many rows one statement takes; a larger commit is several statements of one transaction.
    pub rows_per_statement: usize,
}

impl PostgresSinkConfig {
    /// Writes into `table` by way of `connection`.
    pub fn new(connection: tokio_postgres::Config, table: TableName, mode: WriteMode) -> Self {
        Self {
            connection,
            table,
            mode,
            key: Vec::new(),
            tombstones: Tombstone::default(),
            columns: BTreeMap::new(),
            owner: this_process(),
            statement_timeout: Duration::from_secs(60),
            lock_timeout: Duration::from_secs(10),
            idle_in_transaction_session_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(30),
            claim_timeout: Duration::from_secs(60),
            claim_patience: Duration::from_secs(2),
            max_retries: 10,
            reconnect_pause: Duration::from_secs(10),
            run: Run::default(),
            rows_per_statement: 5_000,
        }
    }

    /// Like [`PostgresSinkConfig::new`], with the connection as a URL or as `key=value` pairs.
    ///
    /// # Errors
    /// [`ErrorClass::Fatal`] if `connection` is neither. The error shows nothing of it: it may hold a password.
    pub fn from_url(connection: &str, table: TableName, mode: WriteMode) -> Result<Self, SinkError> {
        // The cause is left out on purpose: it can quote parts of the string.
        let parsed = connection.parse::<tokio_postgres::Config>().map_err(|_| {
            SinkError::new(
                ErrorClass::Fatal,
                "the connection string is no valid postgres:// URL or list of key=value pairs (not shown here, it \
                 may hold a password)",
            )
        })?;
        Ok(Self::new(parsed, table, mode))
    }

    /// Sets the columns of the key.
    #[must_use]
    pub fn key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what deletions do.
    #[must_use]
    pub fn tombstones(mut self, tombstones: Tombstone) -> Self {
        self.tombstones = tombstones;
        self
    }

    /// Sets the options of one column.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, options: ColumnOptions) -> Self {
        self.columns.insert(name.into(), options);
        self
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            statement_timeout: self.statement_timeout,
            lock_timeout: self.lock_timeout,
            idle_in_transaction_session_timeout: self.idle_in_transaction_session_timeout,
        }
    }
}

/// Shows where it connects to and never the password.
impl fmt::Debug for PostgresSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSinkConfig")
            .field("hosts", &self.connection.get_hosts())
            .field("ports", &self.connection.get_ports())
            .field("user", &self.connection.get_user())
            .field("database", &self.connection.get_dbname())
            .field("table", &self.table)
            .field("mode", &self.mode)
            .field("key", &self.key)
            .field("tombstones", &self.tombstones)
            .field("columns", &self.columns)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Names this host and process.
pub(crate) fn this_process() -> String {
    let host =
        std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map(str::trim).filter(|host| !host.is_empty()).unwrap_or("localhost");
    format!("{host}/{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [PGS-38] nothing of a connection string is shown, be it valid or not.
    #[test]
    fn password_is_never_shown() {
        let table = TableName::new("t").expect("a name");
        let url = "postgres://app:hunter2@db.internal/orders";
        let config = PostgresSinkConfig::from_url(url, table.clone(), WriteMode::Insert).expect("a URL");
        let shown = format!("{config:?}");
        assert!(shown.contains("db.internal") && !shown.contains("hunter2"), "{shown}");
        let broken = PostgresSinkConfig::from_url(
            "postgres://app:hunter2@db:port/x?y=hunter2",
            table,
            WriteMode::Insert,
        );
        let shown = format!("{:?}", broken.expect_err("no URL"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
