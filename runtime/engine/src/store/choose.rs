//! Which checkpoint a start goes on from, as a function over what was found.

use levada_core::CheckpointId;
use thiserror::Error;

use super::entry::{Entry, EntryKind};
use super::log::{Damage, checkpoints, horizon, newest_resolved};
use super::manifest::Manifest;
use super::savepoint::{Continued, Savepoint};

/// What to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RestoreFrom {
    /// The newest checkpoint.
    #[default]
    Latest,
    /// This one.
    Checkpoint(CheckpointId),
}

/// What the job and its operator allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestorePolicy {
    /// Every sink of the job writes the same when it writes again, so that an older checkpoint does no harm.
    pub every_sink_idempotent: bool,
    /// Sinks may publish again what they have published.
    pub allow_replay: bool,
    /// A store in which nothing can be used counts as empty.
    pub allow_fresh_start: bool,
}

/// How to start.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Decision {
    /// From nothing: no checkpoint was ever complete, or an empty start was asked for.
    Fresh,
    /// From the newest checkpoint.
    Restore(Manifest),
    /// From an older one, which is allowed, and to be said loudly.
    Replay {
        /// The older one.
        from: Manifest,
        /// What is wrong with newer ones.
        passed_over: Vec<Damage>,
    },
    /// Not at all.
    Refuse(Refusal),
}

/// Why a job does not start by itself.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There were checkpoints, and none can be used.
    #[error("no checkpoint of the store can be used: {}", list(.0))]
    NothingUsable(Vec<Damage>),
    /// Going on would publish again what was published after the checkpoint.
    #[error(
        "going on from checkpoint {from} would publish again what came after it (newest resolved: {}){}{}; allow a replay if \
         that is what you want",
        .resolved.map_or("none".to_owned(), |id| id.to_string()),
        list_sinks(.sinks),
        list_after(.passed_over)
    )]
    NeedsReplay {
        /// The checkpoint.
        from: CheckpointId,
        /// The newest checkpoint of which everything is visible.
        resolved: Option<CheckpointId>,
        /// What is wrong with newer ones.
        passed_over: Vec<Damage>,
        /// Which sinks would publish again, and how much.
        sinks: Vec<Republished>,
    },
    /// The savepoint was gone on from before.
    #[error(
        "savepoint {name:?} was gone on from by {:?}, attempt {}: going on from it once more would publish again what that \
         one has published{}",
        .by.owner, .by.attempt, list_sinks(.sinks)
    )]
    Continued {
        /// The savepoint.
        name: String,
        /// Who did so first.
        by: Continued,
        /// Which sinks would publish again, and how much.
        sinks: Vec<Republished>,
    },
    /// The savepoint was taken in another store, under a higher attempt than this one has reached.
    #[error(
        "savepoint {name:?} is checkpoint {id}, which is above attempt {attempt} of this store: ids must rise, so it can be \
         gone on from only in a store whose attempts are beyond it"
    )]
    ForeignSavepoint {
        /// The savepoint.
        name: String,
        /// Its checkpoint.
        id: CheckpointId,
        /// The attempt that is to go on from it.
        attempt: u64,
    },
    /// The newest checkpoint was taken by a job of another name.
    #[error(
        "checkpoint {id} of this store is of job {owner:?}, and this is {job:?}: give each job a store of its own, or, if the \
         job was renamed, name the checkpoint to go on from"
    )]
    AnotherJob {
        /// The checkpoint.
        id: CheckpointId,
        /// Who took it.
        owner: String,
        /// Who was to go on from it.
        job: String,
    },
    /// The one that was asked for is not there, or is being discarded.
    #[error("checkpoint {0} is not in the store")]
    Unknown(CheckpointId),
    /// The one that was asked for is damaged.
    #[error("checkpoint {id} is damaged: {}", list(.damages))]
    Damaged {
        /// The checkpoint.
        id: CheckpointId,
        /// Its damages.
        damages: Vec<Damage>,
    },
}

/// What a sink publishes again when a job goes on from an older checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Republished {
    /// The sink.
    pub uid: String,
    /// How many records it took after that checkpoint, up to the newest one that can be read. There may be more.
    pub records: u64,
}

/// Counts what sinks would publish again when a job goes on from `from`.
pub fn republished(from: &Manifest, entries: &[Entry]) -> Vec<Republished> {
    let newer = checkpoints(entries).map(|(_, manifest)| manifest).filter(|newer| newer.id > from.id);
    let Some(newest) = newer.max_by_key(|newer| newer.id) else { return Vec::new() };
    let again = newest.records.iter().filter_map(|(uid, records)| {
        let records = records.saturating_sub(from.records.get(uid).copied().unwrap_or_default());
        (records > 0).then(|| Republished { uid: uid.clone(), records })
    });
    again.collect()
}

fn list_sinks(sinks: &[Republished]) -> String {
    let named =
        sinks.iter().map(|Republished { uid, records }| format!("sink {uid:?} at least {records} records"));
    let named: Vec<_> = named.collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

fn list(damages: &[Damage]) -> String {
    let named: Vec<_> = damages.iter().map(|damage| format!("{damage} {}", damage.flaw)).collect();
    named.join("; ")
}

fn list_after(damages: &[Damage]) -> String {
    if damages.is_empty() { String::new() } else { format!("; damaged: {}", list(damages)) }
}

/// Decides where to go on, from the entries and damages of a [`Recovery`](super::Recovery)'s log.
///
/// An entry that cannot be read may have been a checkpoint, so it counts as one. Older than the newest is allowed by
/// itself only if every sink is idempotent and the newest ones are damaged; an older one that was asked for by name needs
/// `allow_replay` in any case, also when the newest is not resolved: its sinks may have begun to publish.
///
/// What was rolled back counts as if it had never been, damages included.
pub fn choose(entries: &[Entry], damages: &[Damage], from: RestoreFrom, policy: RestorePolicy) -> Decision {
    let damages = not_rolled_back(entries, damages);
    match from {
        RestoreFrom::Latest => latest(entries, &damages, policy),
        RestoreFrom::Checkpoint(id) => named(entries, &damages, id, policy),
    }
}

/// Decides whether to go on from a savepoint that was read. Its entry may be gone from the log, or never have been in it.
pub fn choose_savepoint(
    entries: &[Entry],
    damages: &[Damage],
    savepoint: &Savepoint,
    policy: RestorePolicy,
) -> Decision {
    let damages = not_rolled_back(entries, damages);
    let manifest = &savepoint.manifest;
    let newest = checkpoints(entries).next_back();
    let resolved = newest_resolved(entries);
    let is_newest = newest.is_some_and(|(number, newest)| {
        newest.id == manifest.id
            && damages_after(number, &damages).is_empty()
            && resolved <= Some(manifest.id)
    });
    let never = newest.is_none() && damages.is_empty() && resolved.max(horizon(entries)).is_none();
    // Gone on from and still the newest: that attempt completed no checkpoint, so it has published nothing.
    if is_newest || (never && savepoint.continued.is_none()) {
        return Decision::Restore(manifest.clone());
    }
    if policy.allow_replay {
        return Decision::Replay { from: manifest.clone(), passed_over: damages };
    }
    let sinks = republished(manifest, entries);
    Decision::Refuse(match &savepoint.continued {
        Some(by) => {
            let name = manifest.savepoint.clone().unwrap_or_default();
            Refusal::Continued { name, by: by.clone(), sinks }
        }
        None => Refusal::NeedsReplay { from: manifest.id, resolved, passed_over: damages, sinks },
    })
}

fn not_rolled_back(entries: &[Entry], damages: &[Damage]) -> Vec<Damage> {
    let notes: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry.kind {
            EntryKind::RolledBack(to) => Some((kept_up_to(entries, entry.number, to), entry.number)),
            _ => None,
        })
        .collect();
    let is_covered = |damage: &Damage| {
        damage.entry.is_some_and(|number| notes.iter().any(|(kept, noted)| *kept < number && number < *noted))
    };
    damages.iter().filter(|damage| !is_covered(damage)).cloned().collect()
}

/// Returns the number of the entry that a roll-back noted at `noted` went down to.
fn kept_up_to(entries: &[Entry], noted: u64, to: Option<CheckpointId>) -> u64 {
    let kept = entries.iter().filter(|entry| entry.number < noted);
    let kept = kept.filter(|entry| entry.manifest().is_some_and(|manifest| Some(manifest.id) == to));
    kept.map(|entry| entry.number).max().unwrap_or(0)
}

fn damages_of(number: u64, damages: &[Damage]) -> Vec<Damage> {
    damages.iter().filter(|damage| damage.entry == Some(number)).cloned().collect()
}

/// Returns what is wrong behind an entry.
fn damages_after(number: u64, damages: &[Damage]) -> Vec<Damage> {
    damages.iter().filter(|damage| damage.entry > Some(number)).cloned().collect()
}

fn latest(entries: &[Entry], damages: &[Damage], policy: RestorePolicy) -> Decision {
    let mut usable = checkpoints(entries).rev();
    let usable = usable.find(|(number, _)| damages_of(*number, damages).is_empty());
    let Some((number, manifest)) = usable else {
        let never = damages.is_empty() && newest_resolved(entries).max(horizon(entries)).is_none();
        return match never || policy.allow_fresh_start {
            true => Decision::Fresh,
            false => Decision::Refuse(Refusal::NothingUsable(damages.to_vec())),
        };
    };
    let passed_over = damages_after(number, damages);
    let resolved = newest_resolved(entries);
    if passed_over.is_empty() && resolved <= Some(manifest.id) {
        return Decision::Restore(manifest.clone());
    }
    let allowed = policy.every_sink_idempotent || policy.allow_replay;
    older(entries, manifest, passed_over, resolved, allowed)
}

fn named(entries: &[Entry], damages: &[Damage], id: CheckpointId, policy: RestorePolicy) -> Decision {
    let Some((number, manifest)) = checkpoints(entries).find(|(_, manifest)| manifest.id == id) else {
        return Decision::Refuse(Refusal::Unknown(id));
    };
    let own = damages_of(number, damages);
    if !own.is_empty() {
        return Decision::Refuse(Refusal::Damaged { id, damages: own });
    }
    let passed_over = damages_after(number, damages);
    let resolved = newest_resolved(entries);
    let is_newest = checkpoints(entries).next_back().is_some_and(|(newest, _)| newest == number);
    if is_newest && passed_over.is_empty() && resolved <= Some(id) {
        return Decision::Restore(manifest.clone());
    }
    older(entries, manifest, passed_over, resolved, policy.allow_replay)
}

fn older(
    entries: &[Entry],
    manifest: &Manifest,
    passed_over: Vec<Damage>,
    resolved: Option<CheckpointId>,
    allowed: bool,
) -> Decision {
    match allowed {
        true => Decision::Replay { from: manifest.clone(), passed_over },
        false => {
            let sinks = republished(manifest, entries);
            Decision::Refuse(Refusal::NeedsReplay { from: manifest.id, resolved, passed_over, sinks })
        }
    }
}
