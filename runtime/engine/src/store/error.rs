//! How the store fails.

use std::fmt;

use levada_core::Timestamp;
use thiserror::Error;

use super::log::Damage;

/// Who holds, or held, a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The name it gave.
    pub owner: String,
    /// Its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The number of its lease entry.
    pub attempt: u64,
    /// When it took the lease, by its own clock.
    pub since: Timestamp,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {}, process {}, attempt {}", self.owner, self.host, self.pid, self.attempt)
    }
}

/// What the store cannot do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The location cannot be understood.
    #[error("{url:?} is no place for checkpoints: {reason}")]
    Location {
        /// As given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The store creates an object that exists: nothing could be safe in it.
    #[error(
        "{place} created the same object twice; checkpoints need a store that creates only what does not exist"
    )]
    NotConditional {
        /// The store.
        place: String,
    },
    /// Somebody else took the number of the next entry. The process must end before any side effect.
    #[error("entry {number} was written by somebody else{}", by.as_ref().map(|by| format!(": {by}")).unwrap_or_default())]
    TakenOver {
        /// The number.
        number: u64,
        /// Who holds the newest lease, if that can be read.
        by: Option<Box<Holder>>,
    },
    /// Another process lives and holds the lease.
    #[error("the store is held by {by} since {}", by.since)]
    Held {
        /// The other process.
        by: Box<Holder>,
    },
    /// A piece that is needed is missing or corrupt.
    #[error("stored data is damaged")]
    Damaged(#[from] Damage),
    /// The store, the disk or the network did not do what was asked. After an append the entry may exist all the same; a
    /// later append finds out.
    #[error("could not {action} {name}")]
    Unavailable {
        /// What was tried.
        action: &'static str,
        /// The object.
        name: String,
        /// Why it failed.
        #[source]
        cause: object_store::Error,
    },
    /// A folder of the store could not be made durable.
    #[error("could not {action} {name}")]
    Folder {
        /// What was tried.
        action: &'static str,
        /// The folder.
        name: String,
        /// Why it failed.
        #[source]
        cause: std::io::Error,
    },
    /// A value cannot be written as JSON: a bug.
    #[error("could not encode an entry")]
    Encode(#[source] serde_json::Error),
}

impl StoreError {
    /// Tells whether another process has taken the store over: the only thing left to do is to end.
    pub fn is_taken_over(&self) -> bool {
        matches!(self, StoreError::TakenOver { .. })
    }

    /// Tells whether another process holds the store and lives.
    pub fn is_held(&self) -> bool {
        matches!(self, StoreError::Held { .. })
    }
}
