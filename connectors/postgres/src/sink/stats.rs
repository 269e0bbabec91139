//! What a sink has done so far, as plain numbers.

use std::collections::BTreeMap;

/// Counters of one sink since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Commits that succeeded.
    pub flushes: u64,
    /// Rows sent in them, deletions included.
    pub rows: u64,
    /// Attempts that were made again, by SQLSTATE.
    pub retries: BTreeMap<String, u64>,
    /// Connections made after the first one.
    pub reconnects: u64,
    /// Commits whose outcome was unknown and was read from the positions.
    pub resolved: u64,
    /// Rolled back transactions that looked for a bad record.
    pub probes: u64,
    /// Values of fields that the table has no column for, by field; beyond the first thousand names together, as
    /// `(others)`.
    pub unknown_fields: BTreeMap<String, u64>,
    /// Backends of earlier owners that a claim ended.
    pub terminated: u64,
}

/// Whether the sink can reach its server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Health {
    /// It has not been opened, or was closed.
    #[default]
    Closed,
    /// It is connected.
    Connected,
    /// The server is away; the sink tries again until it is back.
    Degraded {
        /// Why, without any row value.
        reason: String,
    },
}
