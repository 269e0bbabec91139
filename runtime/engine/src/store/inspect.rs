//! What is in a store, as plain values for people.

use std::collections::BTreeMap;

use levada_core::{CheckpointId, Timestamp};

use super::Store;
use super::backend::{Backend, Patience};
use super::entry::{Entry, EntryKind};
use super::error::{Holder, StoreError};
use super::log::{Damage, Log, RollBacks, checkpoints, horizon, newest_resolved};
use super::manifest::{Manifest, OperatorState, Stored};
use crate::failpoint::fail_point;

/// A store's content.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// The entries that can be read, by number.
    pub rows: Vec<Row>,
    /// What is missing or corrupt.
    pub damages: Vec<Damage>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Row {
    /// A process took the store.
    Lease {
        /// The process.
        holder: Holder,
    },
    /// A checkpoint is complete.
    Checkpoint {
        /// The entry's number.
        number: u64,
        /// What it consists of.
        summary: CheckpointSummary,
    },
    /// Everything a checkpoint covers is visible.
    Resolved {
        /// The entry's number.
        number: u64,
        /// The checkpoint.
        id: CheckpointId,
    },
    /// A checkpoint and all before it may be deleted.
    Discarding {
        /// The entry's number.
        number: u64,
        /// The checkpoint.
        id: CheckpointId,
    },
    /// What came after a checkpoint is dropped and read again.
    RolledBack {
        /// The entry's number.
        number: u64,
        /// The checkpoint; none: everything before is dropped.
        to: Option<CheckpointId>,
    },
}

/// A checkpoint, in figures.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointSummary {
    /// Its id.
    pub id: CheckpointId,
    /// When it was triggered.
    pub triggered: Timestamp,
    /// The savepoint that it is.
    pub savepoint: Option<String>,
    /// Whether everything it covers is known to be visible.
    pub resolved: bool,
    /// Whether it may be deleted and is not restored any more.
    pub discarded: bool,
    /// Bytes of state, inlined and in parts.
    pub bytes: u64,
    /// Transactions that wait for it.
    pub pending_transactions: u64,
    /// Records in them.
    pub pending_records: u64,
    /// How many records each sink has taken since the job began.
    pub records: BTreeMap<String, u64>,
    /// Its operators by uid.
    pub operators: BTreeMap<String, OperatorSummary>,
}

/// The state of an operator, in figures.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OperatorSummary {
    /// How many subtasks it had.
    pub parallelism: u32,
    /// Bytes of state.
    pub bytes: u64,
    /// Parts.
    pub parts: u64,
    /// Where its sources go on, by split.
    pub positions: BTreeMap<String, u64>,
    /// Transactions that wait.
    pub pending_transactions: u64,
    /// Records in them.
    pub pending_records: u64,
    /// Pieces that its states refer to.
    pub pieces: u64,
}

fn summarize_operator(operator: &OperatorState) -> OperatorSummary {
    let mut summary = OperatorSummary { parallelism: operator.parallelism, ..OperatorSummary::default() };
    for subtask in &operator.subtasks {
        summary.bytes += subtask.stored.bytes();
        summary.parts += u64::from(matches!(subtask.stored, Stored::Part(_)));
        summary.pending_transactions += subtask.pending_transactions;
        summary.pending_records += subtask.pending_records;
        summary.pieces += subtask.pieces.len() as u64;
        summary.bytes += subtask.pieces.iter().map(|piece| piece.length).sum::<u64>();
        summary.positions.extend(subtask.positions.clone());
    }
    summary
}

fn summarize(number: u64, manifest: &Manifest, entries: &[Entry]) -> CheckpointSummary {
    let is_rolled_back = RollBacks::of(entries).cover(number, manifest.id);
    let operators: BTreeMap<_, _> =
        manifest.operators.iter().map(|(uid, state)| (uid.clone(), summarize_operator(state))).collect();
    CheckpointSummary {
        id: manifest.id,
        triggered: manifest.triggered,
        savepoint: manifest.savepoint.clone(),
        resolved: !is_rolled_back && Some(manifest.id) <= newest_resolved(entries),
        discarded: is_rolled_back || Some(manifest.id) <= horizon(entries),
        bytes: operators.values().map(|operator| operator.bytes).sum(),
        pending_transactions: operators.values().map(|operator| operator.pending_transactions).sum(),
        pending_records: operators.values().map(|operator| operator.pending_records).sum(),
        records: manifest.records.clone(),
        operators,
    }
}

fn listing(log: Log) -> Listing {
    let rows = log.entries.iter().map(|entry| match &entry.kind {
        EntryKind::Lease(lease) => Row::Lease { holder: lease.holder(entry.number) },
        EntryKind::Checkpoint(manifest) => {
            let summary = summarize(entry.number, manifest, &log.entries);
            Row::Checkpoint { number: entry.number, summary }
        }
        EntryKind::Resolved(id) => Row::Resolved { number: entry.number, id: *id },
        EntryKind::Discarding(id) => Row::Discarding { number: entry.number, id: *id },
        EntryKind::RolledBack(to) => Row::RolledBack { number: entry.number, to: *to },
    });
    Listing { rows: rows.collect(), damages: log.damages }
}

impl Store {
    /// Opens a store to look at it: creates nothing and tries nothing.
    ///
    /// # Errors
    /// The place does not exist or cannot be reached.
    pub fn open_to_read(url: &str) -> Result<Self, StoreError> {
        Ok(Self::over(Backend::open_existing(url, Patience::Person)?))
    }

    /// Lists the entries. Parts are not read: damage is that of entries.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self) -> Result<Listing, StoreError> {
        Ok(listing(self.log().await?))
    }

    /// Describes one checkpoint, with every damage of its pieces; `None` if there is no entry of it that can be read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn show(
        &self,
        id: CheckpointId,
    ) -> Result<Option<(CheckpointSummary, Vec<Damage>)>, StoreError> {
        let log = self.log().await?;
        let wanted = log.entries.iter().find_map(|entry| {
            let manifest = entry.manifest()?;
            (manifest.id == id).then_some((entry.number, manifest))
        });
        let Some((number, manifest)) = wanted else { return Ok(None) };
        fail_point!("store::inspect::between_log_and_pieces");
        let damages = self.damages_of(Some(number), manifest).await?;
        // What may be deleted may be gone: no damage.
        let (damages, horizon) = self.without_discarded(damages, &log, horizon(&log.entries)).await?;
        let mut summary = summarize(number, manifest, &log.entries);
        summary.discarded |= Some(manifest.id) <= horizon;
        Ok(Some((summary, damages)))
    }

    /// Lists the entries and reads every piece of every checkpoint that was not discarded.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn verify(&self) -> Result<Listing, StoreError> {
        let mut log = self.log().await?;
        fail_point!("store::inspect::between_log_and_pieces");
        let mut damages = Vec::new();
        for (number, manifest) in checkpoints(&log.entries) {
            damages.extend(self.damages_of(Some(number), manifest).await?);
        }
        let (damages, _) = self.without_discarded(damages, &log, horizon(&log.entries)).await?;
        log.damages.extend(damages);
        Ok(listing(log))
    }

    /// Leaves out damages of checkpoints that a running job has discarded since the log was read: their parts are gone
    /// because nobody needs them. Returns the newest discarded checkpoint, too.
    async fn without_discarded(
        &self,
        mut damages: Vec<Damage>,
        log: &Log,
        horizon_then: Option<CheckpointId>,
    ) -> Result<(Vec<Damage>, Option<CheckpointId>), StoreError> {
        if damages.is_empty() {
            return Ok((damages, horizon_then));
        }
        let horizon_now = horizon(&self.log().await?.entries).max(horizon_then);
        let manifests = log.entries.iter().filter_map(|entry| Some((entry.number, entry.manifest()?.id)));
        let ids: BTreeMap<u64, CheckpointId> = manifests.collect();
        let id_of = |damage: &Damage| damage.entry.and_then(|number| ids.get(&number).copied());
        damages.retain(|damage| id_of(damage).is_none_or(|id| Some(id) > horizon_now));
        Ok((damages, horizon_now))
    }
}
