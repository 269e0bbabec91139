//! Deleting what is no longer needed.
//!
//! First an entry says which checkpoints go, then their parts go, then their entries. A crash in between leaves
//! checkpoints that nobody restores any more, and the next pass goes on where this one ended: it deletes by what it finds,
//! not by what it remembers.

use std::collections::BTreeSet;

use levada_core::CheckpointId;

use super::entry::{Entry, EntryKind, id};
use super::error::StoreError;
use super::lease::Lease;
use super::log::{self, Log, checkpoints, horizon, newest_resolved};
use crate::failpoint::fail_point;

/// The fewest checkpoints that are kept, whatever is asked for.
const FEWEST: usize = 2;

/// What a pass of retention deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// The checkpoint up to which all are discarded, if this pass discarded any.
    pub discarded: Option<CheckpointId>,
    /// Parts deleted.
    pub parts: u64,
    /// Pieces deleted.
    pub pieces: u64,
    /// Entries deleted.
    pub entries: u64,
}

/// Returns the newest checkpoint that need not be kept. Savepoints count as none, since people delete them.
///
/// A checkpoint goes only when the one after it is resolved: until then, what it covers is not known to be visible.
pub(crate) fn discardable(entries: &[Entry], keep: usize) -> Option<CheckpointId> {
    let own: Vec<_> = checkpoints(entries)
        .filter(|(_, manifest)| manifest.savepoint.is_none())
        .map(|(_, manifest)| manifest.id)
        .collect();
    let resolved = newest_resolved(entries)?;
    let surplus = own.len().checked_sub(keep.max(FEWEST))?;
    let with_next = own.windows(2).take(surplus);
    with_next.filter(|pair| pair[1] <= resolved).map(|pair| pair[0]).next_back()
}

/// Tells which entries can be deleted: those before the oldest checkpoint that is kept, but no lease, none before a lease or
/// before what may have been one, and no roll-back: what it covers may stand before a lease.
fn deletable_entries(log: &Log) -> Vec<u64> {
    let Some((kept, _)) = checkpoints(&log.entries).next() else { return Vec::new() };
    let leases = log.entries.iter().filter(|entry| entry.lease().is_some()).map(|entry| entry.number);
    let unreadable = log.damages.iter().filter_map(|damage| damage.entry);
    let fences: BTreeSet<u64> = leases.chain(unreadable).collect();
    let may_go = |number: &u64| *number < kept && !fences.contains(number) && !fences.contains(&(number + 1));
    let notes = |entry: &&Entry| matches!(entry.kind, EntryKind::RolledBack(_));
    log.entries.iter().filter(|entry| !notes(entry)).map(|entry| entry.number).filter(may_go).collect()
}

/// Tells whether a part or a piece, by its name below its folder, belongs to a checkpoint that was or would have been
/// before the horizon, and to none that is kept.
fn is_garbage(name: &str, horizon: Option<CheckpointId>, referenced: &BTreeSet<&str>) -> bool {
    let owner = name.split_once('/').and_then(|(owner, _)| id::parse(owner));
    owner.is_some_and(|owner| Some(owner) <= horizon) && !referenced.contains(name)
}

impl Lease {
    /// Deletes what is older than the newest `keep` checkpoints; at least two are kept, and all that follow one that is not
    /// resolved.
    ///
    /// # Errors
    /// [`StoreError::TakenOver`], as every append; or the store cannot be used: the next pass goes on. Cancel safe.
    pub async fn retain(&mut self, keep: usize) -> Result<Swept, StoreError> {
        let mut log = self.store().log().await?;
        let discarded = discardable(&log.entries, keep);
        if let Some(id) = discarded {
            fail_point!("store::retention::before_discarding");
            self.discard(id).await?;
            fail_point!("store::retention::after_discarding");
            log = self.store().log().await?;
        }
        let parts = self.sweep_parts(&log).await?;
        let pieces = self.sweep_pieces(&log).await?;
        let entries = self.sweep_entries(&log).await?;
        fail_point!("store::retention::after");
        Ok(Swept { discarded, parts, pieces, entries })
    }

    /// Deletes the pieces that no checkpoint names any more, nor a savepoint, and those of intervals that no checkpoint came
    /// to cover. A piece is named after the first checkpoint that can cover it, and the newest one that is complete covers
    /// all pieces up to it.
    async fn sweep_pieces(&self, log: &Log) -> Result<u64, StoreError> {
        let backend = &self.store().backend;
        let newest = log.entries.iter().filter_map(Entry::manifest).map(|manifest| manifest.id).max();
        let named = checkpoints(&log.entries).flat_map(|(_, manifest)| manifest.pieces());
        let kept: BTreeSet<&str> = named.map(|piece| piece.name.as_str()).collect();
        let folder = backend.path(&["pieces"]);
        let mut garbage = Vec::new();
        for piece in backend.list("pieces").await? {
            let Some(segments) = piece.location.prefix_match(&folder) else { continue };
            let name = segments.map(|segment| segment.as_ref().to_owned()).collect::<Vec<_>>().join("/");
            if is_garbage(&name, newest, &kept) {
                garbage.push((name, piece.location));
            }
        }
        if garbage.is_empty() {
            return Ok(0);
        }
        let by_savepoints = self.store().pieces_of_savepoints().await?;
        garbage.retain(|(name, _)| !by_savepoints.contains(name));
        for (_, location) in &garbage {
            fail_point!("store::retention::between_pieces");
            backend.delete(location).await?;
        }
        Ok(garbage.len() as u64)
    }

    async fn sweep_parts(&self, log: &Log) -> Result<u64, StoreError> {
        let horizon = horizon(&log.entries);
        if horizon.is_none() {
            return Ok(0);
        }
        let kept = checkpoints(&log.entries).flat_map(|(_, manifest)| manifest.parts());
        let referenced: BTreeSet<&str> = kept.map(|part| part.name.as_str()).collect();
        let backend = &self.store().backend;
        let folder = backend.path(&["parts"]);
        let mut deleted = 0;
        for part in backend.list("parts").await? {
            let Some(segments) = part.location.prefix_match(&folder) else { continue };
            let segments: Vec<_> = segments.map(|segment| segment.as_ref().to_owned()).collect();
            if is_garbage(&segments.join("/"), horizon, &referenced) {
                fail_point!("store::retention::between_deletions");
                backend.delete(&part.location).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    async fn sweep_entries(&self, log: &Log) -> Result<u64, StoreError> {
        let backend = &self.store().backend;
        let numbers = deletable_entries(log);
        for number in &numbers {
            backend.delete(&backend.path(&[log::FOLDER, &log::name(*number)])).await?;
        }
        Ok(numbers.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use levada_core::{CheckpointId, Timestamp};
    use proptest::prelude::*;

    use super::{deletable_entries, discardable};
    use crate::store::entry::{Entry, EntryKind, LeaseRecord};
    use crate::store::log::{assemble, checkpoints};
    use crate::store::manifest::Manifest;
    use crate::store::process::ProcessId;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Lease,
        Checkpoint {
            savepoint: bool,
        },
        /// Resolves the one that many before the newest.
        Resolve(usize),
        Retain(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => Just(Step::Lease),
            4 => Just(Step::Checkpoint { savepoint: false }),
            1 => Just(Step::Checkpoint { savepoint: true }),
            3 => (0usize..3).prop_map(Step::Resolve),
            2 => (0usize..4).prop_map(Step::Retain),
        ]
    }

    /// The log, and beside it all that ever was: the naive model looks at everything.
    #[derive(Default)]
    struct World {
        log: BTreeMap<u64, Entry>,
        history: Vec<Entry>,
        attempt: u64,
        sequence: u64,
    }

    impl World {
        fn append(&mut self, kind: EntryKind) {
            let number = self.history.len() as u64 + 1;
            let entry = Entry { number, writer: "w".into(), nonce: number, kind };
            self.log.insert(number, entry.clone());
            self.history.push(entry);
        }

        fn entries(&self) -> Vec<Entry> {
            self.log.values().cloned().collect()
        }

        fn ids(&self, savepoints: bool) -> Vec<CheckpointId> {
            let manifests = self.history.iter().filter_map(Entry::manifest);
            manifests.filter(|m| savepoints || m.savepoint.is_none()).map(|m| m.id).collect()
        }

        fn lease(&mut self) {
            let record = LeaseRecord { owner: "o".into(), process: ProcessId::default(), at: Timestamp(0) };
            self.append(EntryKind::Lease(record));
            (self.attempt, self.sequence) = (self.history.len() as u64, 0);
        }

        fn apply(&mut self, step: Step) {
            match step {
                Step::Lease => self.lease(),
                Step::Checkpoint { savepoint } => {
                    self.sequence += 1;
                    let id = CheckpointId::new(self.attempt, self.sequence);
                    let savepoint = savepoint.then(|| id.to_string());
                    let manifest = Manifest { savepoint, ..Manifest::new(id, Timestamp(0)) };
                    self.append(EntryKind::Checkpoint(manifest));
                }
                Step::Resolve(before) => {
                    if let Some(id) = self.ids(true).iter().rev().nth(before) {
                        self.append(EntryKind::Resolved(*id));
                    }
                }
                Step::Retain(keep) => self.retain(keep),
            }
        }

        fn retain(&mut self, keep: usize) {
            if let Some(id) = discardable(&self.entries(), keep) {
                self.append(EntryKind::Discarding(id));
            }
            let (log, _) = assemble(self.log.values().map(|e| (e.number, Ok(e.clone()))).collect());
            assert_eq!(log.damages, [], "retention's own holes are no damage");
            for number in deletable_entries(&log) {
                self.log.remove(&number);
            }
            self.check();
        }

        /// What must hold after every pass, from everything that ever was.
        fn check(&self) {
            let entries = self.entries();
            let live: Vec<_> = checkpoints(&entries).map(|(_, manifest)| manifest.id).collect();
            let own = self.ids(false);
            for id in own.iter().rev().take(2) {
                assert!(live.contains(id), "{id} is one of the two newest, left: {live:?}");
            }
            let resolved = self.history.iter().filter_map(|entry| match entry.kind {
                EntryKind::Resolved(id) => Some(id),
                _ => None,
            });
            let resolved = resolved.max();
            for pair in own.windows(2) {
                assert!(live.contains(&pair[0]) || Some(pair[1]) <= resolved, "{pair:?} after {resolved:?}");
            }
            for (entry, next) in self.history.iter().zip(self.history.iter().skip(1)) {
                let kept = self.log.contains_key(&entry.number);
                assert!(kept || (entry.lease().is_none() && next.lease().is_none()), "{entry:?} is gone");
            }
            let (log, _) = assemble(self.log.values().map(|e| (e.number, Ok(e.clone()))).collect());
            assert_eq!(log.damages, []);
            assert_eq!(log.head, self.history.len() as u64);
        }
    }

    proptest! {
        /// [CHK-08] [CHK-15] Two newest kept, none before its successor is resolved, no lease and none before a lease deleted.
        #[test]
        fn retention_keeps_what_a_restart_and_a_takeover_need(
            steps in prop::collection::vec(any_step(), 0..60),
        ) {
            let mut world = World::default();
            world.lease();
            for step in steps {
                world.apply(step);
            }
            world.retain(2);
        }
    }

    /// [CHK-08]
    #[test]
    fn what_is_not_needed_goes() {
        let mut world = World::default();
        world.lease();
        for _ in 0..50 {
            world.apply(Step::Checkpoint { savepoint: false });
            world.apply(Step::Resolve(0));
            world.apply(Step::Retain(2));
        }
        let numbers: Vec<_> = world.log.keys().copied().collect();
        assert!(numbers.len() < 10, "left: {numbers:?}");
    }
}
