//! Taking records over: each is encoded at once, and nothing is sent.
//!
//! ```text
//!  Keyed { key, change } ──shape──▶ Mapping: which field is which column        (once per shape)
//!         │
//!         └─ cell(column type) ──▶ cells  │ len bytes │ len bytes │ -1 │ …      (one growing buffer)
//!                            └──▶ keys   │ canonical bytes of the key │ …       (another)
//!                            └──▶ changes: where its cells and its key stand, its column set, its coordinates
//! ```

use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::HashMap;
use levada_core::batch::Coordinates;
use levada_core::{Change, ErrorClass, Keyed, Pending, Row, Shape, SinkError, SplitId, Value};
use tracing::warn;

use super::catalog::{Found, Target};
use super::config::Tombstone;
use super::encode;
use super::stats::Stats;

/// The columns that some rows have, ascending. Rows of one set go into one kind of statement.
#[derive(Debug)]
pub(crate) struct ColumnSets {
    sets: Vec<Box<[usize]>>,
    numbers: HashMap<Box<[usize]>, usize>,
}

impl ColumnSets {
    /// The set of the key's columns, which deletions have.
    pub(crate) const KEY: usize = 0;

    pub(crate) fn new(key: &[usize]) -> Self {
        let mut sets = Self { sets: Vec::new(), numbers: HashMap::new() };
        sets.number(key);
        sets
    }

    /// Returns the number of a set, adding it if it is new.
    pub(crate) fn number(&mut self, columns: &[usize]) -> usize {
        if let Some(number) = self.numbers.get(columns) {
            return *number;
        }
        let number = self.sets.len();
        self.sets.push(columns.into());
        self.numbers.insert(columns.into(), number);
        number
    }

    pub(crate) fn columns(&self, number: usize) -> &[usize] {
        &self.sets[number]
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }
}

/// One change, by reference into its interval's buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded {
    /// Where its cells begin; there is one for each column of the set, in order.
    pub(crate) cells: usize,
    /// Where its key begins.
    pub(crate) key: usize,
    pub(crate) key_len: u32,
    pub(crate) set: u32,
    /// The first eight bytes of the key: enough to sort most keys by.
    pub(crate) key_head: u64,
    pub(crate) is_delete: bool,
    split: u32,
    offset: u64,
}

/// What was written since the last commit.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    pub(crate) cells: Vec<u8>,
    pub(crate) keys: Vec<u8>,
    pub(crate) changes: Vec<Encoded>,
    pub(crate) ignored: u64,
    splits: Vec<SplitId>,
}

impl Interval {
    pub(crate) fn key(&self, change: &Encoded) -> &[u8] {
        &self.keys[change.key..change.key + change.key_len as usize]
    }

    pub(crate) fn coordinates(&self, change: &Encoded) -> Coordinates {
        Coordinates { split: self.splits[change.split as usize].clone(), offset: change.offset }
    }

    fn bytes(&self) -> u64 {
        (self.cells.len() + self.keys.len() + self.changes.len() * size_of::<Encoded>()) as u64
    }

    pub(crate) fn pending(&self) -> Pending {
        Pending { rows: self.changes.len() as u64 + self.ignored, bytes: self.bytes() }
    }

    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.keys.clear();
        self.changes.clear();
        self.splits.clear();
        self.ignored = 0;
    }

    fn split(&mut self, split: &SplitId) -> u32 {
        let known = self.splits.iter().rposition(|candidate| candidate == split);
        known.unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        }) as u32
    }
}

/// Which fields of a pair of shapes go where.
#[derive(Debug)]
struct Mapping {
    set: u32,
    /// In the order of the set's columns.
    fields: Vec<Field>,
    /// Names of fields without a column.
    unknown: Vec<Box<str>>,
    /// A key column that no field belongs to.
    missing_key: Option<usize>,
    /// Held so that their addresses, under which the mapping is found, stay theirs.
    _shapes: (Option<Arc<Shape>>, Option<Arc<Shape>>),
}

#[derive(Debug, Clone, Copy)]
struct Field {
    column: usize,
    is_in_key: bool,
    position: usize,
}

impl Mapping {
    /// Tells whether rows have the names that it was made for.
    fn is_for(&self, key: Option<&Row>, value: Option<&Row>) -> bool {
        let (key_shape, value_shape) = &self._shapes;
        key.map(Row::shape) == key_shape.as_ref() && value.map(Row::shape) == value_shape.as_ref()
    }

    /// Estimates the bytes of the names that it keeps.
    fn weight(&self) -> usize {
        let (key, value) = &self._shapes;
        let names = [key, value].into_iter().flatten().flat_map(|shape| shape.names());
        names.map(|name| name.len() + WEIGHT_OF_NAME).sum()
    }
}

/// Shapes kept resolved. A format that makes a new shape for each record would grow this without end.
const MAX_MAPPINGS: usize = 1024;

/// Estimated bytes of their names, for shapes whose names are data.
const MAX_MAPPED_BYTES: usize = 32 << 20;

/// What a name costs besides its text: its allocations, and its entry in the index of a wide shape.
const WEIGHT_OF_NAME: usize = 128;

/// Names of fields without a column that are counted one by one.
const MAX_UNKNOWN_FIELDS: usize = 1000;

/// Where those beyond them are counted.
const OTHER_FIELDS: &str = "(others)";

type ShapeAddress = (*const Shape, *const Shape);

/// Resolves shapes to columns, once each.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// By address; used for comparison only and never followed.
    known: HashMap<(usize, usize), Arc<Mapping>>,
    /// The same by the hash of the names: rows that were stored and read again have a shape each.
    alike: HashMap<u64, Arc<Mapping>>,
    /// Estimated bytes of the names of `known`.
    weight: usize,
    last: Option<((usize, usize), Arc<Mapping>)>,
}

impl Mappings {
    fn resolve(
        &mut self,
        target: &Target,
        sets: &mut ColumnSets,
        key: Option<&Row>,
        value: Option<&Row>,
    ) -> Result<Arc<Mapping>, Ambiguity> {
        let address = |row: Option<&Row>| row.map_or(std::ptr::null(), |row| Arc::as_ptr(row.shape()));
        let (key_shape, value_shape): ShapeAddress = (address(key), address(value));
        let place = (key_shape.addr(), value_shape.addr());
        if let Some((last, mapping)) = &self.last
            && *last == place
        {
            return Ok(Arc::clone(mapping));
        }
        if let Some(mapping) = self.known.get(&place).map(Arc::clone) {
            self.last = Some((place, Arc::clone(&mapping)));
            return Ok(mapping);
        }
        let hash = self.hash_of_names(key, value);
        if let Some(mapping) = self.alike.get(&hash)
            && mapping.is_for(key, value)
        {
            return Ok(Arc::clone(mapping));
        }
        let mapping = Arc::new(map(target, sets, key.map(Row::shape), value.map(Row::shape))?);
        if self.known.len() >= MAX_MAPPINGS || self.weight > MAX_MAPPED_BYTES {
            self.known.clear();
            self.alike.clear();
            self.weight = 0;
        }
        self.weight += mapping.weight();
        self.alike.insert(hash, Arc::clone(&mapping));
        self.known.insert(place, Arc::clone(&mapping));
        self.last = Some((place, Arc::clone(&mapping)));
        Ok(mapping)
    }

    fn hash_of_names(&self, key: Option<&Row>, value: Option<&Row>) -> u64 {
        self.known.hasher().hash_one((key.map(names_of), value.map(names_of)))
    }
}

fn names_of(row: &Row) -> &[Box<str>] {
    row.shape().names()
}

fn map(
    target: &Target,
    sets: &mut ColumnSets,
    key: Option<&Arc<Shape>>,
    value: Option<&Arc<Shape>>,
) -> Result<Mapping, Ambiguity> {
    let mut fields: Vec<Field> = Vec::new();
    let mut unknown = Vec::new();
    for (shape, is_in_key) in [(key, true), (value, false)] {
        for (position, name) in shape.iter().flat_map(|shape| shape.names().iter().enumerate()) {
            let column = match target.find(name) {
                Found::Column(column) => column,
                Found::Nowhere => {
                    unknown.push(name.clone());
                    continue;
                }
                Found::Ambiguous => {
                    return Err(Ambiguity { field: name.clone(), is_of_columns: true });
                }
            };
            match fields.iter().find(|field| field.column == column) {
                None => fields.push(Field { column, is_in_key, position }),
                // A key's field usually stands in the value, too; the key's own is what identifies the row.
                Some(earlier) if earlier.is_in_key && !is_in_key => {}
                Some(_) => return Err(Ambiguity { field: name.clone(), is_of_columns: false }),
            }
        }
    }
    fields.sort_unstable_by_key(|field| field.column);
    let columns: Vec<usize> = fields.iter().map(|field| field.column).collect();
    // A key column is given by the key, where there is one; only a sink without key columns takes any row.
    let is_given = |column: &usize| fields.iter().any(|field| field.column == *column && field.is_in_key);
    Ok(Mapping {
        set: sets.number(&columns) as u32,
        missing_key: target.key.iter().copied().find(|column| !is_given(column)),
        fields,
        unknown,
        _shapes: (key.cloned(), value.cloned()),
    })
}

/// A field that cannot be assigned to a column.
#[derive(Debug)]
struct Ambiguity {
    field: Box<str>,
    /// Whether it is the table that has several columns for the field, and not the record several fields for a column.
    is_of_columns: bool,
}

impl Ambiguity {
    /// A table is as it is for every record, but fields are a record's own.
    fn at(self, coordinates: Coordinates, target: &Target) -> SinkError {
        let Self { field, is_of_columns } = self;
        let what = match is_of_columns {
            true => "several columns differ in case alone",
            false => "another field is for the same column",
        };
        let message = format!("field {field:?} cannot be assigned to a column of {}: {what}", target.table);
        match is_of_columns {
            true => SinkError::new(ErrorClass::Fatal, format!("{message}; met in record {coordinates}")),
            false => SinkError::bad_record(coordinates, message),
        }
    }
}

/// The place of a record, for what is said of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) split: &'a SplitId,
    pub(crate) offset: u64,
}

impl Place<'_> {
    fn coordinates(self) -> Coordinates {
        Coordinates { split: self.split.clone(), offset: self.offset }
    }
}

/// Encodes records. All of them, or, with an error, none.
pub(crate) fn write<'a>(
    interval: &mut Interval,
    mappings: &mut Mappings,
    sets: &mut ColumnSets,
    target: &Target,
    records: impl Iterator<Item = (Place<'a>, &'a Keyed)>,
    stats: &mut Stats,
) -> Result<(), SinkError> {
    let before = (
        interval.cells.len(),
        interval.keys.len(),
        interval.changes.len(),
        interval.ignored,
        interval.splits.len(),
    );
    let result = write_all(interval, mappings, sets, target, records, stats);
    if result.is_err() {
        interval.cells.truncate(before.0);
        interval.keys.truncate(before.1);
        interval.changes.truncate(before.2);
        interval.ignored = before.3;
        interval.splits.truncate(before.4);
    }
    result
}

fn write_all<'a>(
    interval: &mut Interval,
    mappings: &mut Mappings,
    sets: &mut ColumnSets,
    target: &Target,
    records: impl Iterator<Item = (Place<'a>, &'a Keyed)>,
    stats: &mut Stats,
) -> Result<(), SinkError> {
    // A run of records of one split refers to it at one address.
    let mut split_of: Option<(&SplitId, u32)> = None;
    for (place, Keyed { key, change }) in records {
        let (value, is_delete) = match change {
            Change::Upsert(row) => (Some(row), false),
            Change::Delete => (None, true),
        };
        if is_delete && target.tombstones == Tombstone::Ignore {
            interval.ignored += 1;
            continue;
        }
        let bad = |problem: String| SinkError::bad_record(place.coordinates(), problem);
        if key.is_none() && !target.key.is_empty() {
            return Err(bad(format!("the key is null, and {} needs one", target.table)));
        }
        let mapping = mappings
            .resolve(target, sets, key.as_ref(), value)
            .map_err(|ambiguity| ambiguity.at(place.coordinates(), target))?;
        if let Some(column) = mapping.missing_key {
            let name = &target.columns[column].name;
            return Err(bad(format!("the key has no field for key column {name} of {}", target.table)));
        }
        for name in &mapping.unknown {
            count_unknown(stats, name, target);
        }
        if mapping.fields.is_empty() {
            return Err(bad(format!("{} has a column for none of its fields", target.table)));
        }
        let split = match split_of {
            Some((known, number)) if std::ptr::eq(known, place.split) => number,
            _ => {
                let number = interval.split(place.split);
                split_of = Some((place.split, number));
                number
            }
        };
        let encoded = encode_fields(interval, &mapping, target, key.as_ref(), value, is_delete);
        let (cells, key_start) = encoded.map_err(bad)?;
        let key_bytes = &interval.keys[key_start..];
        interval.changes.push(Encoded {
            cells,
            key: key_start,
            key_len: key_bytes.len() as u32,
            key_head: head(key_bytes),
            set: if is_delete { ColumnSets::KEY as u32 } else { mapping.set },
            is_delete,
            split,
            offset: place.offset,
        });
    }
    Ok(())
}

/// Appends the cells of one change and its canonical key; returns where both begin.
fn encode_fields(
    interval: &mut Interval,
    mapping: &Mapping,
    target: &Target,
    key: Option<&Row>,
    value: Option<&Row>,
    is_delete: bool,
) -> Result<(usize, usize), String> {
    let cells_start = interval.cells.len();
    let key_start = interval.keys.len();
    for field in &mapping.fields {
        let column = &target.columns[field.column];
        if is_delete && !column.is_key {
            continue;
        }
        let row = if field.is_in_key { key } else { value };
        // The mapping was made for the shapes of exactly these rows.
        let value = row.and_then(|row| row.values().get(field.position)).unwrap_or(&Value::Null);
        if matches!(value, Value::Null) && (column.is_not_null || column.is_key) {
            let what = if column.is_key { "which is part of the key" } else { "which is not null" };
            return Err(format!("null for column {}, {what}", column.name));
        }
        let cell_start = interval.cells.len();
        encode::cell(&column.ty, &column.options, value, &mut interval.cells)
            .map_err(|problem| format!("column {}: {problem}", column.name))?;
        if column.is_key {
            encode::canonical_key(&column.ty, &interval.cells[cell_start..], &mut interval.keys);
        }
    }
    Ok((cells_start, key_start))
}

// Shorter keys are padded with zeros; the whole keys decide between equal heads.
fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let shown = key.len().min(8);
    head[..shown].copy_from_slice(&key[..shown]);
    u64::from_be_bytes(head)
}

fn count_unknown(stats: &mut Stats, name: &str, target: &Target) {
    let is_new = !stats.unknown_fields.contains_key(name);
    let name = if is_new && stats.unknown_fields.len() >= MAX_UNKNOWN_FIELDS { OTHER_FIELDS } else { name };
    match stats.unknown_fields.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            warn!(field = name, table = %target.table, "no column for this field; its values are passed over");
            stats.unknown_fields.insert(name.to_owned(), 1);
        }
    }
}

/// Returns the end of the cell that starts at `start`.
pub(crate) fn cell_end(cells: &[u8], start: usize) -> usize {
    let mut length = [0; 4];
    length.copy_from_slice(&cells[start..start + 4]);
    start + 4 + usize::try_from(i32::from_be_bytes(length)).unwrap_or(0)
}
