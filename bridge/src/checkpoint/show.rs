//! `levada checkpoint show`: one checkpoint, operator by operator.

use levada_engine::store::{CheckpointSummary, Damage};

use super::columns::{Columns, Side};
use super::json;
use super::units::{mebibytes, rfc_3339};
use super::{Failure, Report, Show, counted, damage_lines};

pub(super) async fn show(arguments: &Show) -> Result<Report, Failure> {
    let shown = arguments.place.open()?.show(arguments.id).await?;
    let (summary, damages) = shown.ok_or(Failure::NoSuchCheckpoint(arguments.id))?;
    let text = match arguments.place.json {
        true => json::checkpoint_document(&summary, &damages)?,
        false => text(&summary, &damages),
    };
    Ok(Report { text, is_damaged: !damages.is_empty() })
}

/// Writes the checkpoint for people.
pub(super) fn text(summary: &CheckpointSummary, damages: &[Damage]) -> String {
    let mut text = head(summary);
    if !summary.operators.is_empty() {
        text = format!("{text}\n{}", operators(summary));
    }
    if summary.operators.values().any(|operator| !operator.positions.is_empty()) {
        text = format!("{text}\n{}", positions(summary));
    }
    if !damages.is_empty() {
        text = format!("{text}\n{}", damage_lines(damages));
    }
    text
}

fn head(summary: &CheckpointSummary) -> String {
    let mut lines = vec![
        ("triggered", rfc_3339(summary.triggered)),
        ("status", status(summary).to_owned()),
        (
            "state",
            format!("{} in {}", mebibytes(summary.bytes), counted(summary.operators.len(), "operator")),
        ),
        (
            "pending",
            counted(usize::try_from(summary.pending_transactions).unwrap_or(usize::MAX), "transaction"),
        ),
    ];
    if let Some(name) = &summary.savepoint {
        lines.insert(0, ("savepoint", name.clone()));
    }
    let lines = lines.into_iter().map(|(name, value)| format!("  {name:<9}  {value}\n"));
    format!("Checkpoint {}\n{}", summary.id, lines.collect::<String>())
}

fn status(summary: &CheckpointSummary) -> &'static str {
    match (summary.discarded, summary.resolved) {
        (true, _) => "discarded: may be deleted, and is not restored any more",
        (false, true) => "resolved: everything it covers is visible",
        (false, false) => "complete, not yet resolved: its transactions may still be pending",
    }
}

fn operators(summary: &CheckpointSummary) -> String {
    let mut columns = Columns::new([
        ("OPERATOR", Side::Left),
        ("SUBTASKS", Side::Right),
        ("STATE", Side::Right),
        ("PARTS", Side::Right),
        ("PENDING", Side::Right),
    ]);
    for (uid, operator) in &summary.operators {
        columns.add([
            uid.clone(),
            operator.parallelism.to_string(),
            mebibytes(operator.bytes),
            operator.parts.to_string(),
            operator.pending_transactions.to_string(),
        ]);
    }
    columns.text()
}

fn positions(summary: &CheckpointSummary) -> String {
    let mut columns = Columns::new([("OPERATOR", Side::Left), ("SPLIT", Side::Left), ("NEXT", Side::Right)]);
    for (uid, operator) in &summary.operators {
        for (split, next) in &operator.positions {
            columns.add([uid.clone(), split.clone(), next.to_string()]);
        }
    }
    columns.text()
}
