//! `levada checkpoint verify`: every piece, read.

use levada_engine::store::Listing;

use super::columns::{Columns, Side};
use super::json;
use super::list::restorable;
use super::units::{mebibytes, rfc_3339};
use super::{Failure, Report, Verify, counted, damage_lines};

pub(super) async fn verify(arguments: &Verify) -> Result<Report, Failure> {
    let listing = arguments.place.open()?.verify().await?;
    let text = if arguments.place.json { json::document(&listing)? } else { text(&listing) };
    Ok(Report { text, is_damaged: !listing.damages.is_empty() })
}

/// Writes for people what was read and what is wrong with it.
pub(super) fn text(listing: &Listing) -> String {
    let mut columns = Columns::new([
        ("ENTRY", Side::Right),
        ("CHECKPOINT", Side::Left),
        ("TIME", Side::Left),
        ("STATE", Side::Right),
        ("PARTS", Side::Right),
        ("", Side::Left),
    ]);
    for (number, summary) in restorable(listing) {
        let is_whole = !listing.damages.iter().any(|damage| damage.entry == Some(number));
        columns.add([
            number.to_string(),
            summary.id.to_string(),
            rfc_3339(summary.triggered),
            mebibytes(summary.bytes),
            summary.operators.values().map(|operator| operator.parts).sum::<u64>().to_string(),
            if is_whole { "whole" } else { "DAMAGED" }.to_owned(),
        ]);
    }
    let table = if restorable(listing).next().is_some() { columns.text() + "\n" } else { String::new() };
    format!("{table}{}{}", damage_lines(&listing.damages), verdict(listing))
}

fn verdict(listing: &Listing) -> String {
    let entries = match listing.rows.len() {
        1 => "1 entry".to_owned(),
        number => format!("{number} entries"),
    };
    let read = format!("{entries} and {} read", counted(restorable(listing).count(), "checkpoint"));
    match listing.damages.len() {
        0 => format!("{read}, all whole\n"),
        number => format!("{read}; {}\n", counted(number, "damage")),
    }
}
