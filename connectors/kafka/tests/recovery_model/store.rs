//! The log of the checkpoint store. What follows from its entries, the engine's own functions say.

use std::collections::BTreeMap;

use levada_core::{CheckpointId, Timestamp};
use levada_engine::store::{Decision, EntryKind, Log, Manifest, RestoreFrom, RestorePolicy, choose};

use super::names::Handle;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    Lease(u8),
    Checkpoint(Checkpoint),
    Resolved(CheckpointId),
    RolledBack(Option<CheckpointId>),
}

/// A complete checkpoint: up to which interval the source was read, and what waits for its commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Checkpoint {
    pub(crate) id: CheckpointId,
    pub(crate) interval: u8,
    pub(crate) handles: Vec<Handle>,
}

/// What a start goes on from, as it was when the start looked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Chosen {
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) is_resolved: bool,
    pub(crate) previous: Option<CheckpointId>,
    /// Checkpoints that were rolled back above it, and after which none is complete yet.
    pub(crate) rolled_back: Vec<Checkpoint>,
}

impl Chosen {
    /// What the checkpoint holds back for its commit.
    pub(crate) fn kept(&self) -> &[Handle] {
        let unresolved = self.checkpoint.as_ref().filter(|_| !self.is_resolved);
        unresolved.map_or(&[], |checkpoint| &checkpoint.handles)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Store {
    pub(crate) log: Vec<Entry>,
}

impl Store {
    /// Creates the entry behind the last `known` one, if its number is free; or, if the store does not look at that, in any
    /// case. Tells whether it was created.
    pub(crate) fn put(&mut self, known: &mut usize, entry: Entry, is_conditional: bool) -> bool {
        match self.log.get_mut(*known) {
            None => self.log.push(entry),
            Some(_) if is_conditional => return false,
            Some(taken) => *taken = entry,
        }
        *known += 1;
        true
    }

    pub(crate) fn newest_lease(&self) -> Option<u8> {
        self.log.iter().rev().find_map(|entry| match entry {
            Entry::Lease(attempt) => Some(*attempt),
            _ => None,
        })
    }

    pub(crate) fn checkpoint(&self, id: CheckpointId) -> Option<&Checkpoint> {
        self.log.iter().find_map(|entry| match entry {
            Entry::Checkpoint(checkpoint) if checkpoint.id == id => Some(checkpoint),
            _ => None,
        })
    }

    /// The log as the engine reads it.
    fn real(&self) -> Log {
        let real = |(place, entry): (usize, &Entry)| {
            let kind = match entry {
                // What is checked does not look at leases.
                Entry::Lease(_) => return None,
                Entry::Checkpoint(checkpoint) => EntryKind::Checkpoint(manifest(checkpoint.id)),
                Entry::Resolved(id) => EntryKind::Resolved(*id),
                Entry::RolledBack(to) => EntryKind::RolledBack(*to),
            };
            let (number, writer) = (place as u64 + 1, String::new());
            Some(levada_engine::store::Entry { number, writer, nonce: 0, kind })
        };
        let entries = self.log.iter().enumerate().filter_map(real).collect();
        Log { entries, damages: Vec::new(), head: self.log.len() as u64 }
    }

    /// Finds what to go on from, as a start of the engine does. `None` where it refuses: in a log that was written over.
    pub(crate) fn choose(&self) -> Option<Chosen> {
        let log = self.real();
        let policy = RestorePolicy { allow_fresh_start: true, ..RestorePolicy::default() };
        let id = match choose(&log.entries, &log.damages, RestoreFrom::Latest, policy) {
            Decision::Fresh => None,
            Decision::Restore(manifest) => Some(manifest.id),
            _ => return None,
        };
        let number =
            log.checkpoints().find(|(_, manifest)| Some(manifest.id) == id).map(|(number, _)| number);
        let own = number.unwrap_or(0);
        let before = log.checkpoints().rev().find(|(number, _)| *number < own);
        let gone = log.rolled_back().filter(|(number, manifest)| *number > own && Some(manifest.id) > id);
        Some(Chosen {
            checkpoint: id.and_then(|id| self.checkpoint(id)).cloned(),
            is_resolved: id <= log.newest_resolved(),
            previous: before.map(|(_, manifest)| manifest.id),
            rolled_back: gone.filter_map(|(_, manifest)| self.checkpoint(manifest.id)).cloned().collect(),
        })
    }
}

fn manifest(id: CheckpointId) -> Manifest {
    let (records, operators) = (BTreeMap::new(), BTreeMap::new());
    Manifest { id, triggered: Timestamp(0), savepoint: None, drained: false, records, operators }
}
