//! Records between tasks: many in one batch, their payload in one arena.
//!
//! A record carries a 32-bit number into its batch's split table and spans into the batch's arena; nothing is counted
//! or allocated per record.

mod located;

use std::fmt;
use std::sync::Arc;

pub use located::Located;

use crate::arena::{Arena, Slice, Span};
use crate::budget::Permit;
use crate::clock::Timestamp;
use crate::spares::{Lent, Spares};
use crate::split::{Position, Positions, SplitId};

/// What a record's timestamp means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampKind {
    /// The record has none.
    #[default]
    None,
    /// The producer set it.
    Create,
    /// The broker set it when it appended the record.
    Append,
}

/// Where a record comes from, and where its original bytes stand in the batch's arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The number of the split in the batch's table.
    pub split: u32,
    /// The record's own place in the split.
    pub offset: u64,
    /// The record's timestamp; meaningless where `timestamp_kind` is `None`.
    pub timestamp: Timestamp,
    /// What the timestamp means.
    pub timestamp_kind: TimestampKind,
    /// The leader's epoch in which the record was fetched, where the source knows it.
    pub leader_epoch: Option<u32>,
    key: Option<Span>,
    value: Option<Span>,
    headers: Headers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Headers {
    span: Span,
    count: u32,
}

/// One record: its origin and what a map step has made of it so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<T> {
    /// Where it comes from.
    pub origin: Origin,
    /// What it has become; `()` as it leaves a source.
    pub item: T,
}

impl<T> Record<T> {
    /// Returns the record's timestamp, if it has one.
    pub fn timestamp(&self) -> Option<Timestamp> {
        match self.origin.timestamp_kind {
            TimestampKind::None => None,
            TimestampKind::Create | TimestampKind::Append => Some(self.origin.timestamp),
        }
    }
}

/// Records with the arena and the split table that they refer to.
#[derive(Debug)]
pub struct Batch<T> {
    splits: Arc<[SplitId]>,
    arena: Arc<Arena>,
    records: Lent<Record<T>>,
}

impl<T> Batch<T> {
    /// Returns the records in order.
    pub fn records(&self) -> &[Record<T>] {
        self.records.as_slice()
    }

    /// Returns the records in order, to be changed where they are.
    pub fn records_mut(&mut self) -> &mut [Record<T>] {
        self.records.as_mut_slice()
    }

    /// Returns the table that the records' origins refer to.
    pub fn splits(&self) -> &[SplitId] {
        &self.splits
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records().len()
    }

    /// Tells whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Returns the arena.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the split of a record of this batch.
    pub fn split(&self, origin: &Origin) -> &SplitId {
        &self.splits[origin.split as usize]
    }

    /// Returns the original key; `None` is null, which differs from empty.
    pub fn key(&self, origin: &Origin) -> Option<&[u8]> {
        origin.key.map(|span| self.arena.get(span))
    }

    /// Returns the original value; `None` is a tombstone, which differs from an empty value.
    pub fn value(&self, origin: &Origin) -> Option<&[u8]> {
        origin.value.map(|span| self.arena.get(span))
    }

    /// Returns the original key as a slice that may outlive the batch.
    pub fn key_slice(&self, origin: &Origin) -> Option<Slice> {
        origin.key.map(|span| Slice::new(&self.arena, span))
    }

    /// Returns the original value as a slice that may outlive the batch.
    pub fn value_slice(&self, origin: &Origin) -> Option<Slice> {
        origin.value.map(|span| Slice::new(&self.arena, span))
    }

    /// Walks through the headers in order: name and value, which may be null. Names may repeat.
    pub fn headers(&self, origin: &Origin) -> HeaderIter<'_> {
        HeaderIter { rest: self.arena.get(origin.headers.span), left: origin.headers.count }
    }

    /// Names a record's place for messages: `topic-partition@offset`.
    pub fn coordinates(&self, origin: &Origin) -> Coordinates {
        Coordinates { split: self.split(origin).clone(), offset: origin.offset }
    }

    /// Splits off what the records are made of, to build the batch of a next step over the same arena.
    pub fn into_parts(self) -> (BatchParts, Vec<Record<T>>) {
        (BatchParts { splits: self.splits, arena: self.arena }, self.records.into_inner())
    }

    /// Returns arena and splits, to build the batch of a next step over them while this one is still read.
    pub fn parts(&self) -> BatchParts {
        BatchParts { splits: Arc::clone(&self.splits), arena: Arc::clone(&self.arena) }
    }
}

/// The shared parts of a batch: all but its records.
#[derive(Debug, Clone)]
pub struct BatchParts {
    splits: Arc<[SplitId]>,
    arena: Arc<Arena>,
}

impl BatchParts {
    /// Returns the table that the records' origins refer to.
    pub fn splits(&self) -> &[SplitId] {
        &self.splits
    }

    /// Makes a batch of records whose origins refer to these parts.
    pub fn with_records<T>(&self, records: Vec<Record<T>>) -> Batch<T> {
        Batch { splits: Arc::clone(&self.splits), arena: Arc::clone(&self.arena), records: records.into() }
    }

    /// The same with a vector that was [taken](Spares::take) from `spares`, and goes back there with the batch.
    pub fn with_spare<T>(&self, records: Vec<Record<T>>, spares: &Spares<Record<T>>) -> Batch<T> {
        let records = Lent::new(records, Some(spares.clone()));
        Batch { splits: Arc::clone(&self.splits), arena: Arc::clone(&self.arena), records }
    }
}

/// The place of one record, printed as `topic-partition@offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinates {
    /// The split.
    pub split: SplitId,
    /// The record's offset in it.
    pub offset: u64,
}

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.split, self.offset)
    }
}

/// Walks through the headers of a record.
#[derive(Debug)]
pub struct HeaderIter<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = take_framed(&mut self.rest)?;
        let value = take_framed(&mut self.rest);
        Some((name.unwrap_or_default(), value?))
    }
}

// A header's name and value are framed alike: a 32-bit length plus one, where zero stands for null.
fn put_framed(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(0, |part| part.len() as u32 + 1);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

fn take_framed<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let (part, tail) = tail.split_at_checked(length.saturating_sub(1) as usize)?;
    *rest = tail;
    Some((length > 0).then_some(part))
}

/// What a source hands to [`BatchBuilder::push`], borrowed from wherever the client keeps it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawRecord<'a> {
    /// The record's offset.
    pub offset: u64,
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// What the timestamp means.
    pub timestamp_kind: TimestampKind,
    /// The leader's epoch, if known.
    pub leader_epoch: Option<u32>,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
}

/// Collects records and the positions they move.
///
/// A record and its split's new position are added by one call, so there is no moment at which one is there without
/// the other.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    splits: Vec<SplitId>,
    /// For each split of the table: where it stands now, if it moved.
    moved: Vec<Option<Position>>,
    bytes: Vec<u8>,
    records: Vec<Record<()>>,
    permit: Option<Permit>,
    spares: Option<BuilderSpares>,
}

#[derive(Debug, Default)]
struct BuilderSpares {
    bytes: Spares<u8>,
    records: Spares<Record<()>>,
}

impl BatchBuilder {
    /// Makes an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty builder with room for so many records and payload bytes.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self { records: Vec::with_capacity(records), bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Makes an empty builder that uses the memory of its batches again, once they are dropped.
    pub fn recycling() -> Self {
        Self { spares: Some(BuilderSpares::default()), ..Self::default() }
    }

    /// Returns the number of a split in this batch's table, adding it if it is not there.
    ///
    /// The number holds until the builder is finished or cleared; sources keep it for a run of records of one split.
    pub fn split(&mut self, split: &SplitId) -> u32 {
        let known = self.splits.iter().rposition(|candidate| candidate == split);
        let number = known.unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.moved.push(None);
            self.splits.len() - 1
        });
        number as u32
    }

    /// Appends a record without headers and moves its split's position past it.
    pub fn push(&mut self, split: u32, raw: RawRecord<'_>) {
        self.push_with_headers(split, raw, std::iter::empty());
    }

    /// Appends a record and moves its split's position past it.
    pub fn push_with_headers<'h>(
        &mut self,
        split: u32,
        raw: RawRecord<'_>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>)>,
    ) {
        let key = raw.key.map(|key| self.append(key));
        let value = raw.value.map(|value| self.append(value));
        let headers_start = self.bytes.len();
        let mut count = 0;
        for (name, value) in headers {
            put_framed(&mut self.bytes, Some(name));
            put_framed(&mut self.bytes, value);
            count += 1;
        }
        let headers = Headers { span: Span::new(headers_start, self.bytes.len() - headers_start), count };
        let origin = Origin {
            split,
            offset: raw.offset,
            timestamp: raw.timestamp,
            timestamp_kind: raw.timestamp_kind,
            leader_epoch: raw.leader_epoch,
            key,
            value,
            headers,
        };
        self.records.push(Record { origin, item: () });
        self.advance(split, Position::at(raw.offset + 1));
    }

    /// Moves a split's position without a record: past control records, holes and aborted data.
    pub fn advance(&mut self, split: u32, position: Position) {
        self.moved[split as usize] = Some(position);
    }

    fn append(&mut self, part: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        Span::new(start, part.len())
    }

    /// Accounts for the bytes; the permit goes with the arena.
    pub fn hold(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Returns the number of records so far.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Tells whether there is neither a record nor a moved position.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.moved.iter().all(Option::is_none)
    }

    /// Returns the payload bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Freezes what was collected and leaves the builder empty.
    pub fn finish(&mut self) -> (Batch<()>, Positions) {
        let Self { splits, moved, bytes, records, permit, spares } = std::mem::take(self);
        if let Some(spares) = &spares {
            // The next batch is likely to be as large.
            self.bytes = spares.bytes.take(bytes.len());
            self.records = spares.records.take(records.len());
        }
        let positions = splits
            .iter()
            .zip(moved)
            .filter_map(|(split, at)| Some((split.clone(), at?)))
            .collect::<Positions>();
        let bytes = Lent::new(bytes, spares.as_ref().map(|spares| spares.bytes.clone()));
        let records = Lent::new(records, spares.as_ref().map(|spares| spares.records.clone()));
        self.spares = spares;
        let batch = Batch { splits: splits.into(), arena: Arena::lent(bytes, permit), records };
        (batch, positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_record(raw: RawRecord<'_>, headers: &[(&[u8], Option<&[u8]>)]) -> Batch<()> {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("flights", 3));
        builder.push_with_headers(split, raw, headers.iter().copied());
        builder.finish().0
    }

    /// [SRC-22] the record model's part: null and empty stay apart, headers keep order, repetition and null.
    #[test]
    fn tombstone_is_not_an_empty_value() {
        let tombstone = one_record(RawRecord { key: Some(b"k"), ..RawRecord::default() }, &[]);
        let empty = one_record(RawRecord { value: Some(b""), ..RawRecord::default() }, &[]);
        assert_eq!(tombstone.value(&tombstone.records()[0].origin), None);
        assert_eq!(empty.value(&empty.records()[0].origin), Some(&b""[..]));
        assert_eq!(empty.key(&empty.records()[0].origin), None);
    }

    /// [SRC-22] the record model's part.
    #[test]
    fn headers_come_back_as_they_were() {
        let headers: [(&[u8], Option<&[u8]>); 4] =
            [(b"a", Some(b"1")), (b"a", None), (b"", Some(b"")), (b"z", Some(b"22"))];
        let batch = one_record(RawRecord::default(), &headers);
        assert_eq!(batch.headers(&batch.records()[0].origin).collect::<Vec<_>>(), headers);
    }

    #[test]
    fn record_without_a_timestamp_is_not_one_of_1970() {
        let timestamp = |raw| one_record(raw, &[]).records()[0].timestamp();
        assert_eq!(timestamp(RawRecord::default()), None);
        let created = RawRecord { timestamp_kind: TimestampKind::Create, ..RawRecord::default() };
        assert_eq!(timestamp(created), Some(Timestamp(0)));
    }

    /// [SRC-11] the builder's part: the position is the last appended record plus one, or where it was advanced to.
    #[test]
    fn position_moves_with_its_record() {
        let mut builder = BatchBuilder::new();
        let first = builder.split(&SplitId::new("flights", 0));
        let second = builder.split(&SplitId::new("flights", 1));
        let untouched = builder.split(&SplitId::new("flights", 2));
        assert_eq!(builder.split(&SplitId::new("flights", 0)), first);
        assert!(untouched > second);
        builder.push(first, RawRecord { offset: 41, ..RawRecord::default() });
        builder.advance(second, Position::at(7));
        let (batch, moved) = builder.finish();
        assert_eq!(batch.coordinates(&batch.records()[0].origin).to_string(), "flights-0@41");
        assert_eq!(moved.get(&SplitId::new("flights", 0)), Some(&Position::at(42)));
        assert_eq!(moved.get(&SplitId::new("flights", 1)), Some(&Position::at(7)));
        assert_eq!(moved.len(), 2);
        assert!(builder.is_empty());
    }
}
