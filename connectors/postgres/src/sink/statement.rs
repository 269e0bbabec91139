//! Rows into the parameters of set-wise statements.

use std::fmt;

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::catalog::Target;
use super::collapse::{Collapsed, RowRef, collapse, keep_all};
use super::config::WriteMode;
use super::sql;
use super::write::{ColumnSets, Interval, cell_end};

/// A one-dimensional array in binary form, its elements encoded already.
pub(crate) struct Array {
    oid: u32,
    count: i32,
    has_null: bool,
    cells: Vec<u8>,
}

impl Array {
    pub(crate) fn new(oid: u32) -> Self {
        Self { oid, count: 0, has_null: false, cells: Vec::new() }
    }

    pub(crate) fn push(&mut self, cell: &[u8]) {
        self.count += 1;
        self.has_null |= cell.starts_with(&[0xff]);
        self.cells.extend_from_slice(cell);
    }
}

/// Shows the size alone: the driver prints parameters at debug level.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} cells, {} bytes)", self.count, self.cells.len())
    }
}

impl ToSql for Array {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.reserve(20 + self.cells.len());
        out.put_i32(1); // dimensions
        out.put_i32(i32::from(self.has_null));
        out.put_u32(self.oid);
        out.put_i32(self.count);
        out.put_i32(1); // the lower bound
        out.put_slice(&self.cells);
        Ok(IsNull::No)
    }

    // Each statement is written for the arrays that it is given.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A statement with its parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) arrays: Vec<Array>,
}

/// What a commit sends besides the positions, and how it adds up.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// In the order in which they are to run.
    pub(crate) statements: Vec<Statement>,
    pub(crate) written: u64,
    pub(crate) deleted: u64,
    pub(crate) coalesced: u64,
}

/// No statement takes more bytes, unless a single row does: the protocol ends at 1 GB, and the server holds a
/// statement's parameters in memory.
const MAX_STATEMENT_BYTES: usize = 16 << 20;

/// Collapses the first `count` changes of an interval and makes the statements that apply them.
pub(crate) fn build(
    interval: &Interval,
    count: usize,
    target: &Target,
    sets: &mut ColumnSets,
    rows_per_statement: usize,
) -> Work {
    let collapsed = match target.mode {
        WriteMode::Insert => keep_all(interval, count),
        WriteMode::Upsert => collapse(interval, count, sets),
    };
    let mut work = Work {
        written: collapsed.rows.len() as u64,
        deleted: collapsed.deletes.len() as u64,
        coalesced: collapsed.coalesced,
        ..Work::default()
    };
    let source = Source { interval, collapsed: &collapsed, target, sets, rows_per_statement };
    let key = target.sql_columns(&target.key);
    for arrays in source.chunks(ColumnSets::KEY, &collapsed.deletes) {
        // Locked by one statement and deleted by the next, with the same parameters.
        let again = arrays.iter().map(Array::duplicate).collect();
        work.statements.push(Statement { sql: sql::lock_rows(&target.table, &key), arrays: again });
        work.statements.push(Statement { sql: sql::delete(&target.table, &key), arrays });
    }
    for (set, rows) in by_set(&collapsed.rows) {
        let columns = target.sql_columns(sets.columns(set));
        let sql = match target.mode {
            WriteMode::Insert => sql::insert(&target.table, &columns),
            WriteMode::Upsert if target.makes_whole_rows(sets.columns(set)) => {
                sql::upsert(&target.table, &columns)
            }
            WriteMode::Upsert => sql::update_or_insert(&target.table, &columns),
        };
        for arrays in source.chunks(set, &rows) {
            work.statements.push(Statement { sql: sql.clone(), arrays });
        }
    }
    work
}

impl Array {
    fn duplicate(&self) -> Self {
        Self { oid: self.oid, count: self.count, has_null: self.has_null, cells: self.cells.clone() }
    }
}

/// Groups rows by column set, in the order in which the sets were first seen, so that it is the same every time.
fn by_set(rows: &[RowRef]) -> Vec<(usize, Vec<RowRef>)> {
    let mut groups: Vec<(usize, Vec<RowRef>)> = Vec::new();
    let mut place_of: Vec<Option<usize>> = Vec::new();
    for row in rows {
        if place_of.len() <= row.set {
            place_of.resize(row.set + 1, None);
        }
        let place = *place_of[row.set].get_or_insert_with(|| {
            groups.push((row.set, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(*row);
    }
    groups.sort_by_key(|(set, _)| *set);
    groups
}

struct Source<'a> {
    interval: &'a Interval,
    collapsed: &'a Collapsed,
    target: &'a Target,
    sets: &'a ColumnSets,
    rows_per_statement: usize,
}

impl Source<'_> {
    /// Turns rows of one column set into arrays, one per column, as many times as the limits ask for.
    fn chunks(&self, set: usize, rows: &[RowRef]) -> Vec<Vec<Array>> {
        let columns = self.sets.columns(set);
        let empty = || -> Vec<Array> {
            columns.iter().map(|column| Array::new(self.target.columns[*column].ty.wire_oid())).collect()
        };
        let mut chunks = Vec::new();
        let mut arrays = empty();
        let (mut count, mut bytes) = (0, 0);
        for row in rows {
            if count >= self.rows_per_statement || bytes >= MAX_STATEMENT_BYTES {
                chunks.push(std::mem::replace(&mut arrays, empty()));
                (count, bytes) = (0, 0);
            }
            let cells = self.collapsed.cells(self.interval, row);
            let mut start = 0;
            for array in &mut arrays {
                let end = cell_end(cells, start);
                array.push(&cells[start..end]);
                start = end;
            }
            count += 1;
            bytes += start;
        }
        if count > 0 {
            chunks.push(arrays);
        }
        chunks
    }
}
