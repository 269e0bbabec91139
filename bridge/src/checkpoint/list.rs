//! `levada checkpoint list`: the log, one line an entry.

use std::collections::{BTreeMap, BTreeSet};

use levada_core::CheckpointId;
use levada_engine::store::{CheckpointSummary, Listing, Row};

use super::columns::{Columns, Side};
use super::json::document;
use super::units::{mebibytes, rfc_3339};
use super::{Failure, List, Report, counted, damage_lines};

pub(super) async fn list(arguments: &List) -> Result<Report, Failure> {
    let mut listing = arguments.place.open()?.list().await?;
    if let Some(job) = &arguments.job {
        listing = of_job(listing, job)?;
    }
    let text = if arguments.place.json { document(&listing)? } else { text(&listing) };
    Ok(Report { text, is_damaged: !listing.damages.is_empty() })
}

/// Keeps the attempts of one job, and every damage: what cannot be read may be anybody's.
fn of_job(mut listing: Listing, job: &str) -> Result<Listing, Failure> {
    let holders = listing.rows.iter().filter_map(|row| match row {
        Row::Lease { holder } => Some((holder.attempt, holder.owner.clone())),
        _ => None,
    });
    let owners: BTreeMap<u64, String> = holders.collect();
    let is_of_job = |attempt: u64| owners.get(&attempt).is_some_and(|owner| owner == job);
    listing.rows.retain(|row| is_of_job(attempt(row)));
    if !listing.rows.is_empty() {
        return Ok(listing);
    }
    let there: BTreeSet<_> = owners.into_values().map(|owner| format!("{owner:?}")).collect();
    Err(Failure::NoSuchJob { job: job.to_owned(), there: there.into_iter().collect() })
}

fn attempt(row: &Row) -> u64 {
    match row {
        Row::Lease { holder } => holder.attempt,
        Row::Checkpoint { summary, .. } => summary.id.attempt,
        Row::Resolved { id, .. } | Row::Discarding { id, .. } => id.attempt,
        // `Row` may gain kinds; those of no attempt are of no job.
        _ => 0,
    }
}

/// Writes the listing for people.
pub(super) fn text(listing: &Listing) -> String {
    if listing.rows.is_empty() && listing.damages.is_empty() {
        return "The store is empty: no job has begun in it.\n".to_owned();
    }
    let mut columns = Columns::new([
        ("ENTRY", Side::Right),
        ("KIND", Side::Left),
        ("CHECKPOINT", Side::Left),
        ("TIME", Side::Left),
        ("STATE", Side::Right),
        ("SPLITS", Side::Right),
        ("PENDING", Side::Right),
        ("", Side::Left),
    ]);
    listing.rows.iter().filter_map(cells).for_each(|row| columns.add(row));
    format!("{}{}\n{}", columns.text(), damage_lines(&listing.damages), summary(listing))
}

fn cells(row: &Row) -> Option<[String; 8]> {
    let none = String::new;
    Some(match row {
        Row::Lease { holder } => [
            holder.attempt.to_string(),
            "lease".to_owned(),
            none(),
            rfc_3339(holder.since),
            none(),
            none(),
            none(),
            holder.to_string(),
        ],
        Row::Checkpoint { number, summary } => checkpoint_cells(*number, summary),
        Row::Resolved { number, id } => short_cells(*number, "resolved", *id),
        Row::Discarding { number, id } => short_cells(*number, "discarding", *id),
        _ => return None,
    })
}

fn checkpoint_cells(number: u64, summary: &CheckpointSummary) -> [String; 8] {
    let splits: usize = summary.operators.values().map(|operator| operator.positions.len()).sum();
    [
        number.to_string(),
        "checkpoint".to_owned(),
        summary.id.to_string(),
        rfc_3339(summary.triggered),
        mebibytes(summary.bytes),
        splits.to_string(),
        summary.pending_transactions.to_string(),
        remarks(summary).join(", "),
    ]
}

fn short_cells(number: u64, kind: &str, id: CheckpointId) -> [String; 8] {
    let mut cells: [String; 8] = Default::default();
    cells[0] = number.to_string();
    cells[1] = kind.to_owned();
    cells[2] = id.to_string();
    cells
}

/// What else there is to say of a checkpoint.
fn remarks(summary: &CheckpointSummary) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(name) = &summary.savepoint {
        remarks.push(format!("savepoint {name:?}"));
    }
    if summary.discarded {
        remarks.push("discarded".to_owned());
    } else if summary.resolved {
        remarks.push("resolved".to_owned());
    }
    remarks
}

/// Walks through the checkpoints that can be restored, oldest first.
pub(super) fn restorable(listing: &Listing) -> impl DoubleEndedIterator<Item = (u64, &CheckpointSummary)> {
    listing.rows.iter().filter_map(|row| match row {
        Row::Checkpoint { number, summary } if !summary.discarded => Some((*number, summary)),
        _ => None,
    })
}

fn summary(listing: &Listing) -> String {
    let count = counted(restorable(listing).count(), "checkpoint");
    let newest = restorable(listing).next_back().map(|(_, summary)| format!(", the newest {}", summary.id));
    let damages = match listing.damages.len() {
        0 => String::new(),
        number => format!("; {}", counted(number, "damage")),
    };
    format!("{count} to restore from{}{damages}\n", newest.unwrap_or_default())
}
