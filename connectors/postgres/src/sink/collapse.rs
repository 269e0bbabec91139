//! What remains of an interval's changes when only the end of each key counts.
//!
//! ```text
//!   before                     after, per key
//!   U a            ───▶        U a
//!   U a · U b      ───▶        U a∪b            fields that b does not have keep a's
//!   U a · D        ───▶        D
//!   D · U a        ───▶        D, then U a      fields that a does not have become their defaults again
//!   U a · D · U b  ───▶        D, then U b
//! ```
//!
//! Deletions are sent before rows, so the result is what one-by-one application gives. Every change is either sent or
//! counted as coalesced.

use super::write::{ColumnSets, Encoded, Interval, cell_end};

/// A row to send: where its cells are, and for which columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRef {
    pub(crate) cells: usize,
    pub(crate) set: usize,
    /// Whether the cells stand in [`Collapsed::merged`] and not in the interval.
    pub(crate) is_merged: bool,
}

/// What is to be sent, each list in key order.
#[derive(Debug, Default)]
pub(crate) struct Collapsed {
    pub(crate) deletes: Vec<RowRef>,
    pub(crate) rows: Vec<RowRef>,
    pub(crate) coalesced: u64,
    /// Cells of rows that were put together from several changes.
    pub(crate) merged: Vec<u8>,
}

impl Collapsed {
    pub(crate) fn cells<'a>(&'a self, interval: &'a Interval, row: &RowRef) -> &'a [u8] {
        match row.is_merged {
            true => &self.merged[row.cells..],
            false => &interval.cells[row.cells..],
        }
    }
}

/// Orders the first `count` changes by key and keeps every one: for plain inserts.
pub(crate) fn keep_all(interval: &Interval, count: usize) -> Collapsed {
    let changes = &interval.changes[..count];
    let rows = in_key_order(interval, changes).into_iter().map(|number| row_of(&changes[number])).collect();
    Collapsed { rows, ..Collapsed::default() }
}

/// Collapses the first `count` changes.
pub(crate) fn collapse(interval: &Interval, count: usize, sets: &mut ColumnSets) -> Collapsed {
    let changes = &interval.changes[..count];
    let order = in_key_order(interval, changes);
    let mut collapsed = Collapsed::default();
    let mut rest = &order[..];
    while let Some(first) = rest.first() {
        let key = interval.key(&changes[*first]);
        let same = rest.iter().take_while(|number| interval.key(&changes[**number]) == key).count();
        let (of_one_key, others) = rest.split_at(same);
        rest = others;
        collapse_key(interval, changes, of_one_key, sets, &mut collapsed);
    }
    let sent = collapsed.deletes.len() + collapsed.rows.len();
    collapsed.coalesced = (changes.len() - sent) as u64;
    collapsed
}

fn row_of(change: &Encoded) -> RowRef {
    RowRef { cells: change.cells, set: change.set as usize, is_merged: false }
}

/// Returns the numbers of the changes by key, and for one key by age.
fn in_key_order(interval: &Interval, changes: &[Encoded]) -> Vec<usize> {
    let mut order: Vec<(u64, u32)> =
        changes.iter().enumerate().map(|(number, change)| (change.key_head, number as u32)).collect();
    order.sort_unstable_by(|(head, number), (other_head, other)| {
        let key = |number: &u32| interval.key(&changes[*number as usize]);
        head.cmp(other_head).then_with(|| key(number).cmp(key(other))).then_with(|| number.cmp(other))
    });
    order.into_iter().map(|(_, number)| number as usize).collect()
}

fn collapse_key(
    interval: &Interval,
    changes: &[Encoded],
    numbers: &[usize],
    sets: &mut ColumnSets,
    collapsed: &mut Collapsed,
) {
    let last_delete = numbers.iter().rposition(|number| changes[*number].is_delete);
    if let Some(at) = last_delete {
        collapsed.deletes.push(row_of(&changes[numbers[at]]));
    }
    let upserts = &numbers[last_delete.map_or(0, |at| at + 1)..];
    let Some((newest, older)) = upserts.split_last() else { return };
    let newest = &changes[*newest];
    let is_whole = older.iter().all(|number| {
        let set = changes[*number].set;
        set == newest.set || includes(sets.columns(newest.set as usize), sets.columns(set as usize))
    });
    let row = match is_whole {
        true => row_of(newest),
        false => merge(interval, changes, upserts, sets, &mut collapsed.merged),
    };
    collapsed.rows.push(row);
}

// Both ascending.
fn includes(outer: &[usize], inner: &[usize]) -> bool {
    inner.iter().all(|column| outer.binary_search(column).is_ok())
}

/// Puts a row together in which each column has its newest cell.
fn merge(
    interval: &Interval,
    changes: &[Encoded],
    numbers: &[usize],
    sets: &mut ColumnSets,
    merged: &mut Vec<u8>,
) -> RowRef {
    // Column, and where its cell begins and ends.
    let mut newest: Vec<(usize, usize, usize)> = Vec::new();
    for number in numbers.iter().rev() {
        let change = &changes[*number];
        let mut start = change.cells;
        for column in sets.columns(change.set as usize) {
            let end = cell_end(&interval.cells, start);
            if let Err(place) = newest.binary_search_by_key(column, |(column, _, _)| *column) {
                newest.insert(place, (*column, start, end));
            }
            start = end;
        }
    }
    let row_start = merged.len();
    for (_, start, end) in &newest {
        merged.extend_from_slice(&interval.cells[*start..*end]);
    }
    let columns: Vec<usize> = newest.iter().map(|(column, _, _)| *column).collect();
    RowRef { cells: row_start, set: sets.number(&columns), is_merged: true }
}
