//! What a write-ahead driver stores: one element for each segment, so that a change of parallelism spreads them.
//!
//! ```text
//! "LWAL" version:u16  value_version:u16
//! job:bytes uid:bytes subtask:u32 attempt:u64 sequence:u64     the marker: of the subtask that took the records
//! time:i64 records:u64
//! count reference:bytes*                                       pieces stored apart
//! tail:bytes                                                   the rest: values, each behind its length, as in a piece
//! ```

use std::fmt;

use levada_core::template::Marker;
use levada_core::{ListState, Spread, State, StateError, Storable, Timestamp};

use crate::driver::codec::{Format, Reader, Writer, put_bytes};

/// The list's name in the state.
const LIST: &str = "segments";

const FORMAT: Format = Format { magic: *b"LWAL", version: 1, what: "a segment" };

/// The records of an interval, or of a part of it, as bytes.
#[derive(Default, Clone, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) records: u64,
    /// References to pieces, in order.
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) tail: Vec<u8>,
}

/// Prints sizes only: the bytes are the user's.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("records", &self.records)
            .field("pieces", &self.pieces.len())
            .field("tail_bytes", &self.tail.len())
            .finish()
    }
}

impl Body {
    /// Appends a record. `scratch` is emptied and used.
    pub(super) fn push<T: Storable>(&mut self, record: &T, scratch: &mut Vec<u8>) {
        scratch.clear();
        record.store(scratch);
        put_bytes(&mut self.tail, scratch);
        self.records += 1;
    }
}

/// Reads the values in a piece or a tail.
pub(super) fn load_values<T: Storable>(
    version: u16,
    bytes: &[u8],
    values: &mut Vec<T>,
) -> Result<(), StateError> {
    let mut reader = Reader::headless(FORMAT, bytes);
    while !reader.is_at_end() {
        values.push(T::load(version, reader.bytes()?)?);
    }
    Ok(())
}

/// A segment that waits for its notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) marker: Marker,
    pub(super) time: Timestamp,
    /// The version of the values: of the program that took them.
    pub(super) version: u16,
    pub(super) body: Body,
}

impl Entry {
    fn store(&self) -> Vec<u8> {
        let Self { marker, time, version, body } = self;
        let mut writer = Writer::new(FORMAT);
        writer.u16(*version);
        writer.bytes(marker.job.as_bytes());
        writer.bytes(marker.uid.as_bytes());
        writer.u32(marker.subtask);
        writer.checkpoint(marker.checkpoint);
        writer.timestamp(*time);
        writer.u64(body.records);
        writer.length(body.pieces.len());
        body.pieces.iter().for_each(|piece| writer.bytes(piece));
        writer.bytes(&body.tail);
        writer.finish()
    }

    fn load(bytes: &[u8]) -> Result<Self, StateError> {
        let mut reader = Reader::new(FORMAT, bytes)?;
        let version = reader.u16()?;
        let (job, uid) = (reader.text()?, reader.text()?);
        let marker = Marker { job, uid, subtask: reader.u32()?, checkpoint: reader.checkpoint()? };
        let (time, records) = (reader.timestamp()?, reader.u64()?);
        let mut pieces = Vec::new();
        for _ in 0..reader.length()? {
            pieces.push(reader.bytes()?.to_vec());
        }
        let tail = reader.bytes()?.to_vec();
        reader.finish()?;
        Ok(Self { marker, time, version, body: Body { records, pieces, tail } })
    }

    /// Makes the state of one subtask.
    pub(super) fn to_state<'a>(entries: impl IntoIterator<Item = &'a Self>) -> State {
        let elements = entries.into_iter().map(Self::store).collect();
        State::new().with(LIST, ListState::new(Spread::Split, FORMAT.version, elements))
    }

    /// Reads the segments that were dealt to a subtask, in the order in which they are to be sent.
    pub(super) fn all_of(state: &State) -> Result<Vec<Self>, StateError> {
        let Some(list) = state.get(LIST) else { return Ok(Vec::new()) };
        FORMAT.check(list.version)?;
        let entries = list.elements.iter().map(|element| Self::load(element));
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        // Several subtasks' segments may have come together, each subtask's in order.
        entries.sort_by_key(|entry| (entry.marker.checkpoint, entry.marker.subtask));
        Ok(entries)
    }
}
