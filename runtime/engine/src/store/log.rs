//! Reading the log: what is in it, what is missing from it, and the newest checkpoint that is whole.

use std::collections::BTreeMap;
use std::fmt;

use futures_util::{StreamExt, TryStreamExt, stream};
use levada_core::CheckpointId;
use thiserror::Error;

use super::Store;
use super::backend::Backend;
use super::choose::RestoreFrom;
use super::entry::{Entry, EntryKind, LeaseRecord};
use super::error::StoreError;
use super::frame::Flaw;
use super::manifest::Manifest;
use super::part::PartHome;

/// The folder of the entries.
pub(crate) const FOLDER: &str = "log";
/// Entries read at once.
const READS: usize = 8;
/// A hole may be an entry that was deleted between listing and reading; it is looked at this often before it is damage.
const LOOKS: u32 = 3;

/// A piece of the store that is missing or corrupt.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{piece}", entry.map(|number| format!("entry {number}, ")).unwrap_or_default())]
pub struct Damage {
    /// The entry that it is, or that names it.
    pub entry: Option<u64>,
    /// The piece.
    pub piece: Piece,
    /// What is wrong with it.
    #[source]
    pub flaw: Flaw,
}

/// A piece of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece {
    /// An entry itself.
    Entry,
    /// A part, by its name.
    Part(String),
    /// State in a manifest, by operator and subtask.
    Inline(String),
    /// The manifest of a savepoint, by its name.
    Savepoint(String),
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Entry => f.write_str("the entry itself"),
            Piece::Part(name) => write!(f, "part {name}"),
            Piece::Inline(place) => write!(f, "state of {place}"),
            Piece::Savepoint(name) => write!(f, "manifest of savepoint {name}"),
        }
    }
}

impl Damage {
    pub(crate) fn new(entry: Option<u64>, piece: Piece, flaw: Flaw) -> Self {
        Self { entry, piece, flaw }
    }
}

/// The log, as it was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// The entries that can be read, by number.
    pub entries: Vec<Entry>,
    /// Those that cannot, and those that should be there and are not.
    pub damages: Vec<Damage>,
    /// The highest number that is taken; 0 if none is.
    pub head: u64,
}

impl Log {
    /// Returns the newest lease, with its entry.
    pub fn newest_lease(&self) -> Option<(&Entry, &LeaseRecord)> {
        self.entries.iter().rev().find_map(|entry| Some((entry, entry.lease()?)))
    }

    /// Walks through the checkpoints that were not discarded, oldest first, with the numbers of their entries.
    pub fn checkpoints(&self) -> impl DoubleEndedIterator<Item = (u64, &Manifest)> {
        checkpoints(&self.entries)
    }

    /// Returns the newest checkpoint of which everything is visible, and which was not rolled back.
    pub fn newest_resolved(&self) -> Option<CheckpointId> {
        newest_resolved(&self.entries)
    }

    /// Walks through the checkpoints that were rolled back and not discarded since, oldest first.
    pub fn rolled_back(&self) -> impl Iterator<Item = (u64, &Manifest)> {
        let (horizon, roll_backs) = (horizon(&self.entries), RollBacks::of(&self.entries));
        let manifests = self.entries.iter().filter_map(|entry| Some((entry.number, entry.manifest()?)));
        manifests.filter(move |(number, manifest)| {
            Some(manifest.id) > horizon && roll_backs.cover(*number, manifest.id)
        })
    }

    /// Tells whether there is, or was, a checkpoint, or something that may have been one.
    pub(crate) fn has_history(&self) -> bool {
        let is_any = self.newest_resolved().max(horizon(&self.entries)).is_some();
        is_any || self.checkpoints().next().is_some() || !self.damages.is_empty()
    }
}

/// Walks through the checkpoints that were neither discarded nor rolled back, oldest first.
pub(crate) fn checkpoints(entries: &[Entry]) -> impl DoubleEndedIterator<Item = (u64, &Manifest)> {
    let (horizon, roll_backs) = (horizon(entries), RollBacks::of(entries));
    entries.iter().filter_map(|entry| Some((entry.number, entry.manifest()?))).filter(
        move |(number, manifest)| Some(manifest.id) > horizon && !roll_backs.cover(*number, manifest.id),
    )
}

/// The roll-backs of a log: where each was noted, and down to which checkpoint it went.
#[derive(Debug, Clone, Default)]
pub(crate) struct RollBacks(Vec<(u64, Option<CheckpointId>)>);

impl RollBacks {
    pub(crate) fn of(entries: &[Entry]) -> Self {
        let noted = entries.iter().filter_map(|entry| match entry.kind {
            EntryKind::RolledBack(to) => Some((entry.number, to)),
            _ => None,
        });
        Self(noted.collect())
    }

    /// Tells whether what an entry says of a checkpoint was rolled back.
    pub(crate) fn cover(&self, number: u64, id: CheckpointId) -> bool {
        self.0.iter().any(|(noted, to)| number < *noted && Some(id) > *to)
    }
}

/// Returns the newest checkpoint that may be deleted; all before it may be, too.
pub(crate) fn horizon(entries: &[Entry]) -> Option<CheckpointId> {
    let discarded = |entry: &Entry| match entry.kind {
        EntryKind::Discarding(id) => Some(id),
        _ => None,
    };
    entries.iter().filter_map(discarded).max()
}

/// Returns the newest checkpoint of which everything is visible, and which was not rolled back.
pub(crate) fn newest_resolved(entries: &[Entry]) -> Option<CheckpointId> {
    let roll_backs = RollBacks::of(entries);
    let resolved = |entry: &Entry| match entry.kind {
        EntryKind::Resolved(id) if !roll_backs.cover(entry.number, id) => Some(id),
        _ => None,
    };
    entries.iter().filter_map(resolved).max()
}

/// Tells which numbers are missing. Below the oldest checkpoint that is kept, retention leaves holes.
fn holes(entries: &[Entry], found: &BTreeMap<u64, Result<Entry, Flaw>>) -> Vec<u64> {
    let Some((&head, _)) = found.last_key_value() else { return Vec::new() };
    let kept = checkpoints(entries).next().map(|(number, _)| number);
    let discarding = || {
        let marks = entries.iter().filter(|entry| matches!(entry.kind, EntryKind::Discarding(_)));
        marks.map(|entry| entry.number).max()
    };
    let first = kept.or_else(discarding).unwrap_or(1);
    (first..=head).filter(|number| !found.contains_key(number)).collect()
}

/// Puts together what was found.
pub(crate) fn assemble(found: BTreeMap<u64, Result<Entry, Flaw>>) -> (Log, bool) {
    let entries: Vec<_> = found.values().filter_map(|entry| entry.as_ref().ok().cloned()).collect();
    let holes = holes(&entries, &found);
    let has_holes = !holes.is_empty();
    let head = found.last_key_value().map_or(0, |(number, _)| *number);
    let missing = holes.into_iter().map(|number| (number, Flaw::Missing));
    let flawed = found.into_iter().filter_map(|(number, entry)| Some((number, entry.err()?)));
    let mut damages: Vec<_> =
        missing.chain(flawed).map(|(n, flaw)| Damage::new(Some(n), Piece::Entry, flaw)).collect();
    damages.sort_by_key(|damage| damage.entry);
    (Log { entries, damages, head }, has_holes)
}

/// Returns the name of an entry: as many digits as a number can have, so that names sort as numbers do.
pub(crate) fn name(number: u64) -> String {
    format!("{number:020}")
}

impl Backend {
    /// Reads one entry; `None` if it does not exist.
    pub(crate) async fn read_entry(&self, number: u64) -> Result<Option<Result<Entry, Flaw>>, StoreError> {
        let framed = self.read(&self.path(&[FOLDER, &name(number)])).await?;
        Ok(framed.map(|framed| Entry::decode(number, &framed)))
    }

    async fn read_log_once(&self) -> Result<(Log, bool), StoreError> {
        let listed = self.list(FOLDER).await?;
        let numbers = listed.iter().filter_map(|object| object.location.filename()?.parse::<u64>().ok());
        // Collected first: a borrowing stream of futures would have to be `Send` for any lifetime.
        let numbers: Vec<_> = numbers.collect();
        let reads = numbers.into_iter().map(|number| async move {
            let read = self.read_entry(number).await?;
            Ok::<_, StoreError>(read.map(|entry| (number, entry)))
        });
        let found: Vec<_> = stream::iter(reads).buffer_unordered(READS).try_collect().await?;
        Ok(assemble(found.into_iter().flatten().collect()))
    }
}

/// A log, with every damage that was met on the way to the newest whole checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recovery {
    /// The log; its damages include missing and corrupt parts of the checkpoints that were passed over.
    pub log: Log,
    /// The newest checkpoint, or the one that was asked for, if every piece of it was read and is whole.
    pub newest: Option<Manifest>,
}

impl Store {
    /// Reads the log.
    ///
    /// # Errors
    /// The store cannot be read. Damage is no error here.
    pub async fn log(&self) -> Result<Log, StoreError> {
        for _ in 1..LOOKS {
            let (log, has_holes) = self.backend.read_log_once().await?;
            if !has_holes {
                return Ok(log);
            }
        }
        self.backend.read_log_once().await.map(|(log, _)| log)
    }

    /// Finds the newest whole checkpoint: reads all of its pieces, and those of newer ones as far as they are whole.
    ///
    /// Whether it may be used, [`choose`](super::choose()) tells.
    ///
    /// # Errors
    /// The store cannot be read. Damage is no error here.
    pub async fn latest(&self) -> Result<Recovery, StoreError> {
        let mut log = self.log().await?;
        let mut newest = None;
        let mut met = Vec::new();
        for (number, manifest) in log.checkpoints().rev() {
            let damages = self.damages_of(Some(number), manifest).await?;
            if damages.is_empty() {
                newest = Some(manifest.clone());
                break;
            }
            met.extend(damages);
        }
        log.damages.extend(met);
        Ok(Recovery { log, newest })
    }

    /// Finds what [`choose`](super::choose()) needs for `from`: the newest whole checkpoint, or the damages of the one that
    /// is asked for.
    ///
    /// # Errors
    /// The store cannot be read. Damage is no error here.
    pub async fn recover(&self, from: RestoreFrom) -> Result<Recovery, StoreError> {
        let RestoreFrom::Checkpoint(id) = from else { return self.latest().await };
        let mut log = self.log().await?;
        let asked = log.checkpoints().find(|(_, manifest)| manifest.id == id);
        let Some((number, manifest)) = asked else { return Ok(Recovery { log, newest: None }) };
        let damages = self.damages_of(Some(number), manifest).await?;
        let newest = damages.is_empty().then(|| manifest.clone());
        log.damages.extend(damages);
        Ok(Recovery { log, newest })
    }

    /// Reads every piece of a checkpoint.
    pub(crate) async fn damages_of(
        &self,
        entry: Option<u64>,
        manifest: &Manifest,
    ) -> Result<Vec<Damage>, StoreError> {
        let mut damages = Vec::new();
        if let Err((place, flaw)) = manifest.check() {
            damages.push(Damage::new(entry, Piece::Inline(place), flaw));
        }
        let (home, pieces) = (manifest.home(), PartHome::Pieces);
        let parts = manifest.parts().map(|part| (&home, part));
        for (home, part) in parts.chain(manifest.pieces().map(|piece| (&pieces, piece))) {
            let read = async {
                let mut reader = self.part_reader(home, part).await?;
                while reader.next().await?.is_some() {}
                Ok(())
            };
            match read.await {
                Err(StoreError::Damaged(damage)) => damages.push(Damage { entry, ..damage }),
                other => other?,
            }
        }
        Ok(damages)
    }
}
