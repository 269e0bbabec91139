//! What a coordinator says of a transactional id, as values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_core::Timestamp;

/// Partitions by topic.
pub type Partitions = BTreeMap<String, BTreeSet<i32>>;

/// The answer of `DescribeTransactions` for one transactional id (KIP-664).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Description {
    /// The coordinator knows the id.
    Found(DescribedTransaction),
    /// `TRANSACTIONAL_ID_NOT_FOUND`: it never did, or the id has expired.
    NotFound,
}

/// What a coordinator has on a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedTransaction {
    /// The state of the newest transaction of the id.
    pub state: TransactionState,
    /// The id's producer id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// When the first partition was added, by the broker's clock; `None` where the broker says −1.
    pub start: Option<Timestamp>,
    /// How long behind its start the broker drops the transaction.
    pub timeout: Duration,
    /// The partitions in it. Those of topics that we may not describe are left out by the broker.
    pub partitions: Partitions,
}

/// States of a transaction, as `DescribeTransactions` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TransactionState {
    /// The id was initialised, and nothing was begun under the epoch.
    Empty,
    /// It takes records.
    Ongoing,
    /// The commit is durable; its markers are being written.
    PrepareCommit,
    /// The abort is durable; its markers are being written.
    PrepareAbort,
    /// Committed, and visible.
    CompleteCommit,
    /// Aborted.
    CompleteAbort,
    /// The id is expiring.
    Dead,
    /// One that this version does not know.
    Other,
}

impl TransactionState {
    /// Reads the name that a broker gives.
    pub fn named(name: &str) -> Self {
        match name {
            "Empty" => Self::Empty,
            "Ongoing" => Self::Ongoing,
            "PrepareCommit" => Self::PrepareCommit,
            "PrepareAbort" => Self::PrepareAbort,
            "CompleteCommit" => Self::CompleteCommit,
            "CompleteAbort" => Self::CompleteAbort,
            "Dead" => Self::Dead,
            _ => Self::Other,
        }
    }
}
