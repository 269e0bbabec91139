//! What a two-phase driver stores: one element for each subtask.
//!
//! ```text
//! "LTPC" version:u16  handle_version:u16
//! is_open:u8 [transaction]      the one that was open; none from this version on: a barrier leaves none open
//! count transaction*            pending, in the order of their checkpoints
//! has_context:u8 [bytes]
//!
//! transaction = attempt:u64 sequence:u64 begun_at:i64 records:u64 handle:bytes
//! ```

use levada_core::{CheckpointId, ListState, Spread, State, StateError, Storable, Timestamp};

use crate::driver::codec::{Format, Reader, Writer};

/// The list's name in the state.
const LIST: &str = "transactions";

const FORMAT: Format = Format { magic: *b"LTPC", version: 1, what: "an entry of transactions" };

/// A transaction as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTransaction<H> {
    /// Its handle.
    pub handle: H,
    /// The checkpoint that covers it.
    pub checkpoint: CheckpointId,
    /// When it was begun, by the wall clock.
    pub begun_at: Timestamp,
    /// How many records were written into it.
    pub records: u64,
}

/// What one subtask stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry<H> {
    pub(super) open: Option<StoredTransaction<H>>,
    pub(super) pending: Vec<StoredTransaction<H>>,
    pub(super) context: Option<Vec<u8>>,
}

impl<H: Storable> Entry<H> {
    fn store(&self) -> Vec<u8> {
        let mut writer = Writer::new(FORMAT);
        writer.u16(H::VERSION);
        writer.is_some(self.open.is_some());
        if let Some(open) = &self.open {
            put(&mut writer, open);
        }
        writer.length(self.pending.len());
        self.pending.iter().for_each(|pending| put(&mut writer, pending));
        writer.is_some(self.context.is_some());
        if let Some(context) = &self.context {
            writer.bytes(context);
        }
        writer.finish()
    }

    fn load(bytes: &[u8]) -> Result<Self, StateError> {
        let mut reader = Reader::new(FORMAT, bytes)?;
        let version = reader.u16()?;
        let open = match reader.is_some()? {
            true => Some(take(&mut reader, version)?),
            false => None,
        };
        let count = reader.length()?;
        let mut pending = Vec::new();
        for _ in 0..count {
            pending.push(take(&mut reader, version)?);
        }
        let context = match reader.is_some()? {
            true => Some(reader.bytes()?.to_vec()),
            false => None,
        };
        reader.finish()?;
        Ok(Self { open, pending, context })
    }

    /// Makes the state of one subtask.
    pub(super) fn into_state(self) -> State {
        State::new().with(LIST, ListState::new(Spread::Split, FORMAT.version, vec![self.store()]))
    }

    /// Reads all entries that were dealt to a subtask.
    pub(super) fn all_of(state: &State) -> Result<Vec<Self>, StateError> {
        let Some(list) = state.get(LIST) else { return Ok(Vec::new()) };
        FORMAT.check(list.version)?;
        list.elements.iter().map(|element| Self::load(element)).collect()
    }
}

/// Takes the transactions out of a state, all of which are known to be visible; what the sink stored beside them stays.
pub(crate) fn without_pending<H: Storable>(state: &State) -> Result<State, StateError> {
    let entries = Entry::<H>::all_of(state)?;
    let elements = entries.into_iter().map(|entry| Entry { pending: Vec::new(), ..entry }.store());
    Ok(state.clone().with(LIST, ListState::new(Spread::Split, FORMAT.version, elements.collect())))
}

fn put<H: Storable>(writer: &mut Writer, transaction: &StoredTransaction<H>) {
    writer.checkpoint(transaction.checkpoint);
    writer.timestamp(transaction.begun_at);
    writer.u64(transaction.records);
    let mut handle = Vec::new();
    transaction.handle.store(&mut handle);
    writer.bytes(&handle);
}

fn take<H: Storable>(reader: &mut Reader<'_>, version: u16) -> Result<StoredTransaction<H>, StateError> {
    Ok(StoredTransaction {
        checkpoint: reader.checkpoint()?,
        begun_at: reader.timestamp()?,
        records: reader.u64()?,
        handle: H::load(version, reader.bytes()?)?,
    })
}
