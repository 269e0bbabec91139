//! How a lookup is configured.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levada_core::Clock;

use crate::quote::TableName;

use super::clock::TickClock;
use super::error::LookupError;
use super::named::NamedQuery;

/// Which of the rows that match a key are the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Matches {
    /// The first one, in the order asked for; without an order, any.
    #[default]
    First,
    /// All of them.
    All,
    /// The only one; none, or more than one, is an error.
    ExactlyOne,
}

/// What bounds a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheBound {
    /// The number of rows. A key that is known to have none counts as one.
    Rows(u64),
    /// About so many bytes of keys and values.
    Bytes(u64),
}

/// What is kept of earlier answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheConfig {
    /// The most that is kept.
    pub bound: CacheBound,
    /// How long an answer counts after it was read from the server.
    pub after_write: Option<Duration>,
    /// How long an answer counts after it was last given.
    pub after_access: Option<Duration>,
    /// How long "there is no such row" counts; `None`: it is not kept.
    pub missing: Option<Duration>,
}

impl CacheConfig {
    /// Keeps answers, up to `bound`. Without a time limit an answer counts until it is thrown out or made invalid.
    pub fn new(bound: CacheBound) -> Self {
        Self { bound, after_write: None, after_access: None, missing: None }
    }

    /// Sets how long an answer counts after it was read.
    #[must_use]
    pub fn after_write(mut self, limit: Duration) -> Self {
        self.after_write = Some(limit);
        self
    }

    /// Sets how long an answer counts after it was last given.
    #[must_use]
    pub fn after_access(mut self, limit: Duration) -> Self {
        self.after_access = Some(limit);
        self
    }

    /// Keeps the answer that there is no row, for so long: a row that is inserted stays unseen as long.
    #[must_use]
    pub fn missing(mut self, limit: Duration) -> Self {
        self.missing = Some(limit);
        self
    }
}

/// Where rows are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// In a table, by some of its columns.
    Table {
        /// The table or view.
        table: TableName,
        /// The columns of the key.
        key: Vec<String>,
        /// The columns wanted; none: all.
        columns: Vec<String>,
        /// Columns by which matching rows are sorted, and whether descending.
        order: Vec<(String, bool)>,
        /// The column that tells from when on a row counts.
        version: Option<String>,
    },
    /// By a query with parameters `:name`; the key's parts are in the order in which they are first named.
    Query {
        /// The query: one `select` without side effects.
        sql: String,
    },
}

/// Everything a [`PostgresLookup`](super::PostgresLookup) is told before it is opened.
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresLookupConfig {
    /// Where to connect.
    pub connection: tokio_postgres::Config,
    /// Where rows are looked up.
    pub target: Target,
    /// Which rows are the answer.
    pub matches: Matches,
    /// The most connections.
    pub connections: usize,
    /// The most unanswered queries on one connection.
    pub calls_per_connection: usize,
    /// The most keys in one query; `get_many` sends as many queries as it needs.
    pub keys_per_query: usize,
    /// How long a call may take in all, waiting for a connection and sending again included.
    pub timeout: Duration,
    /// The server's own limit for a statement, should it hear of no cancel; `None`: `timeout`.
    pub statement_timeout: Option<Duration>,
    /// How long a call waits for room on a connection, within `timeout`.
    pub wait_timeout: Duration,
    /// How long connecting may take.
    pub create_timeout: Duration,
    /// How long a connection that goes into use again may take to answer.
    pub recycle_timeout: Duration,
    /// How long a connection may owe an answer that nobody waits for, before it is closed.
    pub drain_timeout: Duration,
    /// After so long without a call a connection is asked whether it lives before it is used.
    pub idle_check: Duration,
    /// The connections' `application_name`.
    pub application_name: String,
    /// What is kept of earlier answers; `None`: nothing.
    pub cache: Option<CacheConfig>,
    /// Reads the whole table at the start and again after each such time; `None`: rows are read when they are asked for.
    pub preload: Option<Duration>,
    /// How long reading the whole table may take.
    pub load_timeout: Duration,
    /// The channel whose notifications make keys invalid.
    pub invalidation_channel: Option<String>,
    /// Tells the age of what is kept. The machine's, as of its last tick, unless another one is set.
    pub clock: Arc<dyn Clock>,
}

impl PostgresLookupConfig {
    /// Looks rows of `table` up by the columns of `key`.
    pub fn by_table<S: Into<String>>(
        connection: tokio_postgres::Config,
        table: TableName,
        key: impl IntoIterator<Item = S>,
    ) -> Self {
        let key = key.into_iter().map(Into::into).collect();
        let (columns, order) = (Vec::new(), Vec::new());
        Self::new(connection, Target::Table { table, key, columns, order, version: None })
    }

    /// Looks rows up by a query with parameters `:name`.
    pub fn by_query(connection: tokio_postgres::Config, sql: impl Into<String>) -> Self {
        Self::new(connection, Target::Query { sql: sql.into() })
    }

    fn new(connection: tokio_postgres::Config, target: Target) -> Self {
        Self {
            connection,
            target,
            matches: Matches::default(),
            connections: 4,
            calls_per_connection: 32,
            keys_per_query: 500,
            timeout: Duration::from_secs(5),
            statement_timeout: None,
            wait_timeout: Duration::from_secs(5),
            create_timeout: Duration::from_secs(10),
            recycle_timeout: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(10),
            idle_check: Duration::from_secs(30),
            application_name: "levada/lookup".to_owned(),
            cache: None,
            preload: None,
            load_timeout: Duration::from_secs(300),
            invalidation_channel: None,
            clock: Arc::new(TickClock),
        }
    }

    /// Sets the columns that are wanted, for a lookup in a table.
    #[must_use]
    pub fn columns<S: Into<String>>(mut self, wanted: impl IntoIterator<Item = S>) -> Self {
        if let Target::Table { columns, .. } = &mut self.target {
            *columns = wanted.into_iter().map(Into::into).collect();
        }
        self
    }

    /// Sorts the rows that match a key, for a lookup in a table; called again, by one more column.
    #[must_use]
    pub fn order_by(mut self, column: impl Into<String>, is_descending: bool) -> Self {
        if let Target::Table { order, .. } = &mut self.target {
            order.push((column.into(), is_descending));
        }
        self
    }

    /// Looks up the row that counted at an event's time: the one with the greatest `column` that is not later. The column
    /// is a `timestamptz`, a `timestamp` in UTC, or a `bigint` of milliseconds since 1970.
    #[must_use]
    pub fn version_column(mut self, column: impl Into<String>) -> Self {
        if let Target::Table { version, .. } = &mut self.target {
            *version = Some(column.into());
        }
        self
    }

    /// Sets which rows are the answer.
    #[must_use]
    pub fn matches(mut self, matches: Matches) -> Self {
        self.matches = matches;
        self
    }

    /// Sets how long a call may take in all.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the most connections and the most unanswered queries on each.
    #[must_use]
    pub fn connections(mut self, connections: usize, calls_on_each: usize) -> Self {
        self.connections = connections;
        self.calls_per_connection = calls_on_each;
        self
    }

    /// Keeps answers.
    #[must_use]
    pub fn cache(mut self, cache: CacheConfig) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Reads the whole table at the start, and again after each `refresh`. Rows come from memory alone, so a key that the
    /// last reading did not have has no row.
    #[must_use]
    pub fn preload(mut self, refresh: Duration) -> Self {
        self.preload = Some(refresh);
        self
    }

    /// Makes keys invalid when `NOTIFY` names them on `channel`: the key's text, or a JSON array of its parts. Any other
    /// payload makes everything invalid, as any payload does for a lookup by query, and so does the loss of the listening
    /// connection.
    #[must_use]
    pub fn invalidated_by(mut self, channel: impl Into<String>) -> Self {
        self.invalidation_channel = Some(channel.into());
        self
    }

    /// Sets the clock that tells the age of what is kept.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Names the parts of a key, in the order in which a lookup takes them: the key's columns, or the query's parameters in the
    /// order of first naming.
    pub fn key_names(&self) -> Vec<String> {
        match &self.target {
            Target::Table { key, .. } => key.clone(),
            Target::Query { sql } => NamedQuery::parse(sql).names,
        }
    }

    /// Checks what can be checked without the server.
    pub(crate) fn check(&self) -> Result<(), LookupError> {
        let refuse = |what: &str| Err(LookupError::Config(what.to_owned()));
        if self.connections == 0 || self.calls_per_connection == 0 || self.keys_per_query == 0 {
            return refuse("connections, calls on each and keys of a query are at least one");
        }
        if self.timeout.is_zero() {
            return refuse("the timeout must not be zero: a call that never ends holds up the stream");
        }
        let Target::Table { key, version, .. } = &self.target else {
            return match self.preload {
                Some(_) => refuse("a query cannot be read whole; preload needs a table"),
                None => Ok(()),
            };
        };
        if key.is_empty() {
            return refuse("a lookup in a table needs key columns");
        }
        if version.is_some() && (self.cache.is_some() || self.preload.is_some()) {
            return refuse(
                "a lookup by version asks for another time with each record, so nothing can be kept of it; \
                 leave out the cache or the version column",
            );
        }
        if version.is_some() && self.matches == Matches::All {
            return refuse("a lookup by version has one row as its answer; all matches are not one");
        }
        if self.invalidation_channel.is_some() && self.cache.is_none() && self.preload.is_none() {
            return refuse(
                "there is a channel for invalidation, but nothing is kept that it could make invalid",
            );
        }
        Ok(())
    }
}

/// Shows where it connects to and never the password.
impl fmt::Debug for PostgresLookupConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLookupConfig")
            .field("hosts", &self.connection.get_hosts())
            .field("ports", &self.connection.get_ports())
            .field("user", &self.connection.get_user())
            .field("database", &self.connection.get_dbname())
            .field("target", &self.target)
            .field("matches", &self.matches)
            .field("connections", &self.connections)
            .field("calls_per_connection", &self.calls_per_connection)
            .field("timeout", &self.timeout)
            .field("cache", &self.cache)
            .field("preload", &self.preload)
            .field("invalidation_channel", &self.invalidation_channel)
            .finish_non_exhaustive()
    }
}
