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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use levada_core::batch::RawRecord;
    use levada_core::{BatchBuilder, Change, Keyed, Row, Shape, SplitId, Value};
    use proptest::prelude::*;

    use super::super::catalog::{Column, Target};
    use super::super::config::{ColumnOptions, Tombstone, WriteMode};
    use super::super::encode::ColumnType;
    use super::super::places;
    use super::super::stats::Stats;
    use super::super::write::{Mappings, write};
    use super::*;
    use crate::quote::{Identifier, TableName};

    const COLUMNS: [&str; 4] = ["id", "a", "b", "c"];
    /// What a column holds in a fresh row that says nothing of it.
    const DEFAULT: i32 = -7;

    /// A change of a key: which of the columns a, b and c it has, with which values; `None` deletes.
    type Step = (i64, Option<[Option<i64>; 3]>);
    type Table = BTreeMap<i32, [i32; 3]>;

    fn target() -> Target {
        let column = |name: &&str| Column {
            name: Identifier::new(*name).expect("a name"),
            ty: ColumnType::Int4,
            options: ColumnOptions::default(),
            is_not_null: false,
            has_default: false,
            is_generated: false,
            is_identity_always: false,
            is_key: *name == "id",
        };
        let table = TableName::new("t").expect("a name");
        Target::new(table, COLUMNS.iter().map(column).collect(), WriteMode::Upsert, Tombstone::Delete)
    }

    fn change((id, fields): &Step) -> Keyed {
        // Equal keys in different writings.
        let id = if fields.is_some_and(|fields| fields[0].is_some()) {
            Value::Int(*id)
        } else {
            Value::Text(format!("0{id}").into())
        };
        let change = match fields {
            None => Change::Delete,
            Some(fields) => {
                let present =
                    COLUMNS[1..].iter().zip(fields).filter_map(|(name, value)| Some((*name, (*value)?)));
                let (names, values): (Vec<&str>, Vec<Value>) =
                    present.map(|(name, value)| (name, Value::Int(value))).unzip();
                Change::Upsert(Row::new(Shape::new(names), values))
            }
        };
        Keyed { key: Some(Row::new(Shape::new(["id"]), vec![id])), change }
    }

    fn apply_one_by_one(table: &mut Table, steps: &[Step]) {
        for (id, fields) in steps {
            match fields {
                None => drop(table.remove(&(*id as i32))),
                Some(fields) => {
                    upsert(table, *id as i32, &fields.map(|field| field.map(|value| value as i32)))
                }
            }
        }
    }

    fn upsert(table: &mut Table, id: i32, fields: &[Option<i32>; 3]) {
        let row = table.entry(id).or_insert([DEFAULT; 3]);
        for (stored, field) in row.iter_mut().zip(fields) {
            *stored = field.unwrap_or(*stored);
        }
    }

    fn int(cells: &[u8], start: usize) -> i32 {
        i32::from_be_bytes(cells[start + 4..start + 8].try_into().expect("four bytes"))
    }

    fn apply_collapsed(table: &mut Table, interval: &Interval, collapsed: &Collapsed, sets: &ColumnSets) {
        for row in &collapsed.deletes {
            table.remove(&int(collapsed.cells(interval, row), 0));
        }
        for row in &collapsed.rows {
            let cells = collapsed.cells(interval, row);
            let mut fields = [None; 4];
            let mut start = 0;
            for column in sets.columns(row.set) {
                fields[*column] = Some(int(cells, start));
                start = cell_end(cells, start);
            }
            upsert(table, fields[0].expect("the key"), &[fields[1], fields[2], fields[3]]);
        }
    }

    fn interval_of(steps: &[Step], sets: &mut ColumnSets) -> Interval {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("s", 0));
        for offset in 0..steps.len() as u64 {
            builder.push(split, RawRecord { offset, ..RawRecord::default() });
        }
        let (parts, records) = builder.finish().0.into_parts();
        let records = records.into_iter().zip(steps);
        let records =
            records.map(|(record, step)| levada_core::Record { origin: record.origin, item: change(step) });
        let batch = parts.with_records(records.collect());
        let mut interval = Interval::default();
        write(
            &mut interval,
            &mut Mappings::default(),
            sets,
            &target(),
            places(&batch),
            &mut Stats::default(),
        )
        .expect("write");
        interval
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let fields = prop::array::uniform3(prop::option::of(0..100_i64));
        prop::collection::vec((0..6_i64, prop::option::weighted(0.7, fields)), 0..40)
    }

    proptest! {
        /// [PGS-10] collapsed and applied set-wise, changes leave what they leave one by one, and the balance closes.
        #[test]
        fn collapsed_changes_leave_what_single_ones_leave(before in steps(), changes in steps()) {
            let mut expected = Table::new();
            apply_one_by_one(&mut expected, &before);
            let mut found = expected.clone();
            apply_one_by_one(&mut expected, &changes);

            let mut sets = ColumnSets::new(&[0]);
            let interval = interval_of(&changes, &mut sets);
            let collapsed = collapse(&interval, changes.len(), &mut sets);
            apply_collapsed(&mut found, &interval, &collapsed, &sets);
            prop_assert_eq!(found, expected);
            let accounted = collapsed.deletes.len() + collapsed.rows.len() + collapsed.coalesced as usize;
            prop_assert_eq!(accounted, changes.len());
            let keys = collapsed.rows.iter().map(|row| int(collapsed.cells(&interval, row), 0)).collect::<Vec<_>>();
            prop_assert!(keys.is_sorted_by(|one, other| one < other), "each key once, in order: {:?}", keys);
        }

        /// [PGS-10] keys that move up or down by one (`id = id + 1`) do not swallow each other.
        #[test]
        fn shifted_keys_stay_apart(count in 1..20_i64, is_upwards: bool) {
            let ids: Vec<i64> = if is_upwards { (0..count).rev().collect() } else { (1..=count).collect() };
            let shift = if is_upwards { 1 } else { -1 };
            let before: Vec<Step> = ids.iter().map(|id| (*id, Some([Some(*id); 3]))).collect();
            let changes: Vec<Step> =
                ids.iter().flat_map(|id| [(*id, None), (*id + shift, Some([Some(*id), None, None]))]).collect();
            let mut expected = Table::new();
            apply_one_by_one(&mut expected, &before);
            let mut found = expected.clone();
            apply_one_by_one(&mut expected, &changes);
            let mut sets = ColumnSets::new(&[0]);
            let interval = interval_of(&changes, &mut sets);
            let collapsed = collapse(&interval, changes.len(), &mut sets);
            apply_collapsed(&mut found, &interval, &collapsed, &sets);
            prop_assert_eq!(found, expected);
        }
    }
}
