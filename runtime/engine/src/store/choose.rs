//! Which checkpoint a start goes on from, as a function over what was found.

use levada_core::CheckpointId;
use thiserror::Error;

use super::entry::Entry;
use super::log::{Damage, checkpoints, horizon, newest_resolved};
use super::manifest::Manifest;

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
    pub allow_empty: bool,
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
        "going on from checkpoint {from} would publish again what came after it (newest resolved: {}){}",
        .resolved.map_or("none".to_owned(), |id| id.to_string()),
        list_after(.passed_over)
    )]
    NeedsReplay {
        /// The checkpoint.
        from: CheckpointId,
        /// The newest checkpoint of which everything is visible.
        resolved: Option<CheckpointId>,
        /// What is wrong with newer ones.
        passed_over: Vec<Damage>,
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
pub fn choose(entries: &[Entry], damages: &[Damage], from: RestoreFrom, policy: RestorePolicy) -> Decision {
    match from {
        RestoreFrom::Latest => latest(entries, damages, policy),
        RestoreFrom::Checkpoint(id) => named(entries, damages, id, policy),
    }
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
        return match never || policy.allow_empty {
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
    older(manifest, passed_over, resolved, allowed)
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
    older(manifest, passed_over, resolved, policy.allow_replay)
}

fn older(
    manifest: &Manifest,
    passed_over: Vec<Damage>,
    resolved: Option<CheckpointId>,
    allowed: bool,
) -> Decision {
    match allowed {
        true => Decision::Replay { from: manifest.clone(), passed_over },
        false => Decision::Refuse(Refusal::NeedsReplay { from: manifest.id, resolved, passed_over }),
    }
}
