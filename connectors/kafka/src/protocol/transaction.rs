//! Transactions as their coordinator tells of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use levada_core::Timestamp;

/// A transaction, by what a coordinator needs to end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionKey<'k> {
    /// Its transactional id.
    pub transactional_id: &'k str,
    /// The producer id under which it was written.
    pub producer_id: i64,
    /// The epoch of that producer.
    pub epoch: i16,
}

impl fmt::Display for TransactionKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transactional_id, producer_id, epoch } = self;
        write!(f, "{transactional_id} (producer {producer_id}, epoch {epoch})")
    }
}

/// How a transaction is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Its records become visible.
    Commit,
    /// They never do.
    Abort,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::Commit => "commit",
            Ending::Abort => "abort",
        })
    }
}

/// The producer id and epoch that a transactional id was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The producer id.
    pub producer_id: i64,
    /// The epoch.
    pub epoch: i16,
}

/// States of a transaction, as the protocol names them (KIP-664).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// The id was initialised, and nothing was begun under the epoch.
    Empty,
    /// It takes records.
    Ongoing,
    /// The commit is durable; its markers are being written.
    PrepareCommit,
    /// The abort is durable; its markers are being written.
    PrepareAbort,
    /// Committed.
    CompleteCommit,
    /// Aborted.
    CompleteAbort,
    /// A time-out or a new initialisation is about to abort it.
    PrepareEpochFence,
    /// The id is expiring.
    Dead,
    /// One that is not known here.
    Other,
}

impl State {
    const NAMED: [(&'static str, State); 8] = [
        ("Empty", State::Empty),
        ("Ongoing", State::Ongoing),
        ("PrepareCommit", State::PrepareCommit),
        ("PrepareAbort", State::PrepareAbort),
        ("CompleteCommit", State::CompleteCommit),
        ("CompleteAbort", State::CompleteAbort),
        ("PrepareEpochFence", State::PrepareEpochFence),
        ("Dead", State::Dead),
    ];

    pub(super) fn named(name: &str) -> State {
        let found = Self::NAMED.into_iter().find(|(known, _)| *known == name);
        found.map_or(State::Other, |(_, state)| state)
    }

    /// Returns the protocol's name, if this is one.
    pub(super) fn name(self) -> Option<&'static str> {
        let found = Self::NAMED.into_iter().find(|(_, known)| *known == self);
        found.map(|(name, _)| name)
    }
}

/// What a coordinator has on a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The state of the newest transaction of the id.
    pub state: State,
    /// The id's producer id and epoch.
    pub identity: Identity,
    /// When the first partition was added, by the broker's clock; `None` where nothing is open.
    pub start: Option<Timestamp>,
    /// How long behind its start the broker aborts it.
    pub timeout: Duration,
    /// The partitions in it; while its markers are being written, those that wait for theirs. The broker leaves out topics
    /// that we may not describe.
    pub partitions: BTreeMap<String, BTreeSet<i32>>,
}

/// A transactional id in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The id.
    pub transactional_id: String,
    /// Its producer id.
    pub producer_id: i64,
    /// The state of its newest transaction.
    pub state: State,
}
