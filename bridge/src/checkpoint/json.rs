//! The same for programs. Fields are only ever added.

use std::collections::BTreeMap;

use levada_engine::store::{CheckpointSummary, Damage, Holder, Listing, OperatorSummary, Row};
use serde::Serialize;

use super::units::rfc_3339;

#[derive(Serialize)]
struct Document {
    entries: Vec<Entry>,
    damages: Vec<DamageRecord>,
}

#[derive(Serialize)]
struct CheckpointDocument {
    #[serde(flatten)]
    checkpoint: Checkpoint,
    damages: Vec<DamageRecord>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Entry {
    Lease {
        number: u64,
        owner: String,
        host: String,
        pid: u32,
        at: String,
    },
    Checkpoint {
        number: u64,
        #[serde(flatten)]
        checkpoint: Checkpoint,
    },
    Resolved {
        number: u64,
        id: String,
    },
    Discarding {
        number: u64,
        id: String,
    },
}

#[derive(Serialize)]
struct Checkpoint {
    id: String,
    triggered: String,
    savepoint: Option<String>,
    resolved: bool,
    discarded: bool,
    state_bytes: u64,
    pending_transactions: u64,
    operators: BTreeMap<String, Operator>,
}

#[derive(Serialize)]
struct Operator {
    subtasks: u32,
    state_bytes: u64,
    parts: u64,
    pending_transactions: u64,
    positions: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct DamageRecord {
    /// The entry that is damaged, or that names the damaged piece.
    entry: Option<u64>,
    piece: String,
    cause: String,
}

fn lease(holder: &Holder) -> Entry {
    Entry::Lease {
        number: holder.attempt,
        owner: holder.owner.clone(),
        host: holder.host.clone(),
        pid: holder.pid,
        at: rfc_3339(holder.since),
    }
}

fn operator(summary: &OperatorSummary) -> Operator {
    Operator {
        subtasks: summary.parallelism,
        state_bytes: summary.bytes,
        parts: summary.parts,
        pending_transactions: summary.pending_transactions,
        positions: summary.positions.clone(),
    }
}

fn checkpoint(summary: &CheckpointSummary) -> Checkpoint {
    Checkpoint {
        id: summary.id.to_string(),
        triggered: rfc_3339(summary.triggered),
        savepoint: summary.savepoint.clone(),
        resolved: summary.resolved,
        discarded: summary.discarded,
        state_bytes: summary.bytes,
        pending_transactions: summary.pending_transactions,
        operators: summary.operators.iter().map(|(uid, state)| (uid.clone(), operator(state))).collect(),
    }
}

fn entry(row: &Row) -> Option<Entry> {
    match row {
        Row::Lease { holder } => Some(lease(holder)),
        Row::Checkpoint { number, summary } => {
            Some(Entry::Checkpoint { number: *number, checkpoint: checkpoint(summary) })
        }
        Row::Resolved { number, id } => Some(Entry::Resolved { number: *number, id: id.to_string() }),
        Row::Discarding { number, id } => Some(Entry::Discarding { number: *number, id: id.to_string() }),
        _ => None,
    }
}

fn records(damages: &[Damage]) -> Vec<DamageRecord> {
    let record = |damage: &Damage| DamageRecord {
        entry: damage.entry,
        piece: damage.piece.to_string(),
        cause: damage.flaw.to_string(),
    };
    damages.iter().map(record).collect()
}

/// Writes a listing.
pub(super) fn document(listing: &Listing) -> serde_json::Result<String> {
    let entries = listing.rows.iter().filter_map(entry).collect();
    written(&Document { entries, damages: records(&listing.damages) })
}

/// Writes one checkpoint.
pub(super) fn checkpoint_document(
    summary: &CheckpointSummary,
    damages: &[Damage],
) -> serde_json::Result<String> {
    written(&CheckpointDocument { checkpoint: checkpoint(summary), damages: records(damages) })
}

fn written(document: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}
