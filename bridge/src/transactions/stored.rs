//! The store's side: the handles that the newest checkpoints name.

use std::collections::BTreeSet;

use levada_core::CheckpointId;
use levada_engine::driver::{JobRecovery, StoredTransaction};
use levada_engine::store::{Damage, Holder, Log, Manifest, Store, StoreError};
use levada_kafka::sink::recovery::TransactionHandle;

/// So many checkpoints are looked at.
const NEWEST: usize = 3;

/// How a checkpoint stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The next start goes on from it, and its transactions are not known to be visible.
    Waiting,
    /// Everything that it covers is visible.
    Resolved,
    /// A newer one is complete. What it names and the newer one does not was committed in between.
    Superseded,
    /// It was dropped, and what it covers is read again.
    RolledBack,
}

/// A checkpoint with its transactions.
#[derive(Debug)]
pub(super) struct StoredCheckpoint {
    pub(super) id: CheckpointId,
    /// The complete one before it.
    pub(super) previous: Option<CheckpointId>,
    pub(super) standing: Standing,
    pub(super) job: String,
    /// By the uid of their sink.
    pub(super) transactions: Vec<(String, StoredTransaction<TransactionHandle>)>,
    /// Sinks that hold something back which is no transaction of Kafka.
    pub(super) others: Vec<String>,
}

/// What is in the store.
#[derive(Debug)]
pub(super) struct Stored {
    /// Who took the store last.
    pub(super) newest: Option<Holder>,
    /// That one, if it lives.
    pub(super) holder: Option<Holder>,
    /// Newest first.
    pub(super) checkpoints: Vec<StoredCheckpoint>,
    /// Jobs and uids of sinks whose ids are this store's.
    pub(super) sinks: BTreeSet<(String, String)>,
    pub(super) damages: Vec<Damage>,
}

/// Reads them. Changes nothing.
pub(super) async fn read(store: &Store) -> Result<Stored, StoreError> {
    let log = store.log().await?;
    let newest = log.newest_lease().map(|(entry, lease)| lease.holder(entry.number));
    let holder = store.holder(&log).await?;
    let mut stored = Stored {
        newest,
        holder,
        checkpoints: Vec::new(),
        sinks: BTreeSet::new(),
        damages: log.damages.clone(),
    };
    let rolled_back = log.rolled_back().map(|(number, manifest)| (number, manifest, Standing::RolledBack));
    let complete = log.checkpoints().rev().take(NEWEST).enumerate().map(|(place, (number, manifest))| {
        let standing = match place {
            _ if Some(manifest.id) <= log.newest_resolved() => Standing::Resolved,
            0 => Standing::Waiting,
            _ => Standing::Superseded,
        };
        (number, manifest, standing)
    });
    let mut wanted: Vec<_> = complete.chain(rolled_back).collect();
    wanted.sort_by_key(|(number, ..)| std::cmp::Reverse(*number));
    for (number, manifest, standing) in wanted {
        match read_checkpoint(store, &log, number, manifest, standing).await {
            Ok(checkpoint) => stored.add(checkpoint, manifest),
            Err(StoreError::Damaged(damage)) => {
                stored.damages.push(Damage { entry: Some(number), ..damage });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(stored)
}

impl Stored {
    fn add(&mut self, checkpoint: StoredCheckpoint, manifest: &Manifest) {
        let uids = manifest.operators.keys();
        self.sinks.extend(uids.map(|uid| (checkpoint.job.clone(), uid.clone())));
        self.checkpoints.push(checkpoint);
    }
}

async fn read_checkpoint(
    store: &Store,
    log: &Log,
    number: u64,
    manifest: &Manifest,
    standing: Standing,
) -> Result<StoredCheckpoint, StoreError> {
    let before = log.checkpoints().rev().find(|(before, _)| *before < number);
    let owner = log.entries.iter().find(|entry| entry.number == manifest.id.attempt);
    let job = owner.and_then(|entry| entry.lease()).map(|lease| lease.owner.clone());
    let (mut transactions, mut others) = (Vec::new(), Vec::new());
    for (uid, operator) in &manifest.operators {
        let mut states = Vec::new();
        for subtask in &operator.subtasks {
            states.push(store.get_state(&manifest.home(), &subtask.stored).await?);
        }
        let pending: u64 = operator.subtasks.iter().map(|subtask| subtask.pending_transactions).sum();
        match JobRecovery::<TransactionHandle>::read(&states) {
            Ok(read) if read.transactions().is_empty() && pending > 0 => others.push(uid.clone()),
            Ok(read) => {
                transactions.extend(read.transactions().iter().map(|found| (uid.clone(), found.clone())));
            }
            // Handles of another system. One of ours that is damaged is found out by the checksum of its part.
            Err(_) => others.push(uid.clone()),
        }
    }
    Ok(StoredCheckpoint {
        id: manifest.id,
        previous: before.map(|(_, manifest)| manifest.id),
        standing,
        job: job.unwrap_or_default(),
        transactions,
        others,
    })
}
