//! What an async step stores: the inputs that have not left, in order, each as it was read and as what it had become.

use levada_core::async_io::CallError;
use levada_core::batch::RawRecord;
use levada_core::{
    Batch, BatchBuilder, ErrorChain, ListState, Record, Refused, SplitId, Spread, State, StateError,
    Storable, Timestamp, TimestampKind,
};

/// The name of the list.
pub(super) const INPUTS: &str = "inputs";
/// The name of a list that is there where inputs were held by another subtask before, and have not all left since.
pub(super) const MOVED: &str = "moved";
/// The version of its elements.
const VERSION: u16 = 1;

const RECORD: u8 = 0;
const WATERMARK: u8 = 1;
const REFUSED: u8 = 2;

/// Elements on their way into a state, in order.
#[derive(Debug)]
pub(super) struct Held {
    /// Whose they are: after a change of parallelism those of several subtasks come together.
    subtask: u32,
    has_moved: bool,
    elements: Vec<Vec<u8>>,
}

impl Held {
    pub(super) fn of(subtask: u32) -> Self {
        Self { subtask, has_moved: false, elements: Vec::new() }
    }

    /// Sets whether they were held by another subtask before.
    pub(super) fn moved(self, has_moved: bool) -> Self {
        Self { has_moved, ..self }
    }

    /// Adds a record: a batch of one as it was read, and what it had become.
    pub(super) fn record<A: Storable>(&mut self, original: &Batch<()>, item: &A) {
        let mut bytes = self.begin(RECORD);
        put_original(&mut bytes, original);
        bytes.extend_from_slice(&A::VERSION.to_be_bytes());
        item.store(&mut bytes);
        self.elements.push(bytes);
    }

    pub(super) fn watermark(&mut self, watermark: Timestamp) {
        let mut bytes = self.begin(WATERMARK);
        bytes.extend_from_slice(&watermark.0.to_be_bytes());
        self.elements.push(bytes);
    }

    pub(super) fn refused(&mut self, refused: &Refused) {
        let mut bytes = self.begin(REFUSED);
        put_original(&mut bytes, &refused.original());
        put(&mut bytes, Some(ErrorChain(refused.reason.as_ref()).to_string().as_bytes()));
        self.elements.push(bytes);
    }

    fn begin(&self, kind: u8) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&self.subtask.to_be_bytes());
        bytes
    }

    pub(super) fn state(self) -> State {
        if self.elements.is_empty() {
            return State::new();
        }
        let mut state = State::new().with(INPUTS, ListState::new(Spread::Split, VERSION, self.elements));
        if self.has_moved {
            state.insert(MOVED, ListState::new(Spread::Split, VERSION, vec![Vec::new()]));
        }
        state
    }
}

/// An element that was stored.
#[derive(Debug)]
pub(super) enum Restored<A> {
    Record(Batch<A>),
    Watermark(Timestamp),
    Refused(Refused),
}

/// Reads the elements back, in their order.
///
/// Watermarks come only where all elements are of one subtask: that of one says nothing of the records of another.
pub(super) fn load<A: Storable>(state: &State) -> Result<Vec<Restored<A>>, StateError> {
    let Some(list) = state.get(INPUTS) else { return Ok(Vec::new()) };
    if list.version != VERSION {
        let found = list.version;
        return Err(StateError::new(format!(
            "version {found} of an input was found, up to {VERSION} is understood"
        )));
    }
    let mut elements = Vec::new();
    for bytes in list.elements.iter() {
        let element = Reader(bytes).element();
        elements.push(element.ok_or_else(damaged)??);
    }
    let first = elements.first().map(|(subtask, _)| *subtask);
    let is_of_one = elements.iter().all(|(subtask, _)| Some(*subtask) == first);
    let elements = elements.into_iter().map(|(_, element)| element);
    Ok(elements.filter(|element| is_of_one || !matches!(element, Restored::Watermark(_))).collect())
}

/// Tells the split of an element, as the bytes of its stream and index; `None`: it has none.
pub(super) fn split_of(element: &[u8]) -> Result<Option<&[u8]>, StateError> {
    let mut reader = Reader(element);
    let mut split = || {
        let [kind] = reader.take()?;
        let _: [u8; 4] = reader.take()?;
        if kind == WATERMARK {
            return Some(None);
        }
        let from = reader.0;
        reader.part()??;
        let _: [u8; 4] = reader.take()?;
        Some(Some(&from[..from.len() - reader.0.len()]))
    };
    split().ok_or_else(damaged)
}

fn damaged() -> StateError {
    StateError::new("a stored input is cut short or damaged")
}

/// `kind:u8 subtask:u32`, then by kind:
/// record `original item_version:u16 item`, watermark `i64`, refused `original reason`, high bytes first.
///
/// An original is `stream index:u32 offset:u64 timestamp_kind:u8 timestamp:i64 epoch:u64 key value headers:u32 (name value)*`, an
/// epoch its number plus one, and a text or bytes `length:u32 bytes`, the length plus one: 0 is null.
struct Reader<'a>(&'a [u8]);

type Subtask = u32;

impl Reader<'_> {
    fn element<A: Storable>(&mut self) -> Option<Result<(Subtask, Restored<A>), StateError>> {
        let [kind] = self.take()?;
        let subtask = u32::from_be_bytes(self.take()?);
        let element = match kind {
            RECORD => {
                let original = self.original()?;
                let version = u16::from_be_bytes(self.take()?);
                match A::load(version, self.0) {
                    Ok(item) => Restored::Record(become_of(original, item)),
                    Err(error) => return Some(Err(error)),
                }
            }
            WATERMARK => Restored::Watermark(Timestamp(i64::from_be_bytes(self.take()?))),
            REFUSED => Restored::Refused(self.refused()?),
            _ => return None,
        };
        Some(Ok((subtask, element)))
    }

    fn refused(&mut self) -> Option<Refused> {
        let (parts, records) = self.original()?.into_parts();
        let reason = std::str::from_utf8(self.part()??).ok()?;
        // What is left of the error is what it said.
        Some(Refused::new(parts, records.into_iter().next()?, CallError::bad_record(reason).into()))
    }

    fn original(&mut self) -> Option<Batch<()>> {
        let stream = std::str::from_utf8(self.part()??).ok()?;
        let split = SplitId::new(stream, u32::from_be_bytes(self.take()?));
        let offset = u64::from_be_bytes(self.take()?);
        let timestamp_kind = match self.take()? {
            [0] => TimestampKind::None,
            [1] => TimestampKind::Create,
            [2] => TimestampKind::Append,
            _ => return None,
        };
        let timestamp = Timestamp(i64::from_be_bytes(self.take()?));
        let epoch = u64::from_be_bytes(self.take()?).checked_sub(1);
        let leader_epoch = epoch.map(u32::try_from).transpose().ok()?;
        let (key, value) = (self.part()?, self.part()?);
        let mut headers = Vec::new();
        for _ in 0..u32::from_be_bytes(self.take()?) {
            headers.push((self.part()??, self.part()?));
        }
        let mut builder = BatchBuilder::new();
        let number = builder.split(&split);
        let raw = RawRecord { offset, timestamp, timestamp_kind, leader_epoch, key, value };
        builder.push_with_headers(number, raw, headers);
        Some(builder.finish().0)
    }
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Bytes that may be null.
    fn part(&mut self) -> Option<Option<&'a [u8]>> {
        let Some(length) = u32::from_be_bytes(self.take()?).checked_sub(1) else { return Some(None) };
        let (part, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(Some(part))
    }
}

fn become_of<A>(original: Batch<()>, item: A) -> Batch<A> {
    let (parts, records) = original.into_parts();
    let records = records.into_iter().zip([item]);
    parts.with_records(records.map(|(Record { origin, .. }, item)| Record { origin, item }).collect())
}

fn put_original(bytes: &mut Vec<u8>, original: &Batch<()>) {
    for record in original.records() {
        let origin = &record.origin;
        let split = original.split(origin);
        put(bytes, Some(split.stream.as_bytes()));
        bytes.extend_from_slice(&split.index.to_be_bytes());
        bytes.extend_from_slice(&origin.offset.to_be_bytes());
        bytes.push(match origin.timestamp_kind {
            TimestampKind::None => 0,
            TimestampKind::Create => 1,
            TimestampKind::Append => 2,
        });
        bytes.extend_from_slice(&origin.timestamp.0.to_be_bytes());
        let epoch = origin.leader_epoch.map_or(0, |epoch| u64::from(epoch) + 1);
        bytes.extend_from_slice(&epoch.to_be_bytes());
        put(bytes, original.key(origin));
        put(bytes, original.value(origin));
        let headers: Vec<_> = original.headers(origin).collect();
        bytes.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        for (name, value) in headers {
            put(bytes, Some(name));
            put(bytes, value);
        }
    }
}

fn put(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(0, |part| part.len() as u32 + 1);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::super::deal::deal_by_split;
    use super::*;

    type Headers<'a> = [(&'a [u8], Option<&'a [u8]>); 2];

    fn original(headers: &Headers<'_>) -> Batch<()> {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("flights", 3));
        let raw = RawRecord {
            offset: 41,
            timestamp: Timestamp(-7),
            timestamp_kind: TimestampKind::Append,
            leader_epoch: Some(u32::MAX),
            key: Some(b""),
            value: None,
        };
        builder.push_with_headers(split, raw, headers.iter().copied());
        builder.finish().0
    }

    /// [ASY-08] a step behind finds the original bytes after a restore, too: null is not empty.
    #[test]
    fn restored_input_is_as_it_was_read() {
        let headers: Headers<'_> = [(b"a", Some(b"1")), (b"a", None)];
        let batch = original(&headers);
        let mut held = Held::of(2);
        held.record(&batch, &77_u64);
        held.watermark(Timestamp(5));
        let parts = batch.parts();
        held.refused(&Refused::new(parts, batch.records()[0].clone(), "no such carrier".into()));
        let restored = load::<u64>(&held.state()).unwrap();
        let [Restored::Record(record), Restored::Watermark(Timestamp(5)), Restored::Refused(refused)] =
            &restored[..]
        else {
            panic!("{restored:?}")
        };
        let origin = &record.records()[0].origin;
        assert_eq!(record.records()[0].item, 77);
        assert_eq!(*origin, batch.records()[0].origin);
        assert_eq!((record.key(origin), record.value(origin)), (Some(&b""[..]), None));
        assert_eq!(record.headers(origin).collect::<Vec<_>>(), headers);
        assert_eq!(refused.coordinates().to_string(), "flights-3@41");
        assert_eq!(refused.reason.to_string(), "no such carrier");
    }

    /// [ASY-08] a watermark of one subtask says nothing of the records of another.
    #[test]
    fn watermarks_of_several_subtasks_are_left_out() {
        let batch = original(&[(b"a", None), (b"b", None)]);
        let list = |subtask| {
            let mut held = Held::of(subtask);
            held.watermark(Timestamp(5));
            held.record(&batch, &u64::from(subtask));
            held.elements
        };
        let together = [list(0), list(1)].concat();
        let state = State::new().with(INPUTS, ListState::new(Spread::Split, VERSION, together));
        let restored = load::<u64>(&state).unwrap();
        assert!(matches!(&restored[..], [Restored::Record(_), Restored::Record(_)]), "{restored:?}");
    }

    /// [ASY-08] dealt out anew, the elements of a split stay together and in order, whichever subtask held them.
    #[test]
    fn elements_are_dealt_out_by_split() {
        let at = |index, offset| {
            let mut builder = BatchBuilder::new();
            let split = builder.split(&SplitId::new("flights", index));
            builder.push(split, RawRecord { offset, ..RawRecord::default() });
            builder.finish().0
        };
        let of_subtask = |subtask: u32| {
            let mut held = Held::of(subtask);
            for (index, offset) in (0..40).map(|number| (2 * (number % 4) + subtask, u64::from(number))) {
                held.record(&at(index, offset), &u64::from(index));
            }
            held.watermark(Timestamp(5));
            held.state()
        };
        let dealt = deal_by_split(&[of_subtask(0), of_subtask(1)], 3).unwrap();
        assert_eq!(dealt.len(), 3);
        let mut seen: Vec<(u64, u64)> = Vec::new();
        for state in &dealt {
            let mut splits = Vec::new();
            for element in load::<u64>(state).unwrap() {
                let Restored::Record(batch) = element else { panic!("{element:?}") };
                let record = &batch.records()[0];
                seen.push((record.item, record.origin.offset));
                splits.push(record.item);
            }
            splits.sort_unstable();
            splits.dedup();
            assert!(splits.iter().all(|split| seen.iter().filter(|(of, _)| of == split).count() == 10));
        }
        assert_eq!(seen.len(), 80);
        for split in 0..8 {
            let offsets: Vec<_> = seen.iter().filter(|(of, _)| *of == split).map(|(_, at)| *at).collect();
            assert!(offsets.is_sorted(), "{split}: {offsets:?}");
        }
    }

    /// [CHK-09] what is cut short, or of a later version, is an error, never a missing input.
    #[test]
    fn damaged_or_later_state_is_refused() {
        let mut held = Held::of(0);
        held.record(&original(&[(b"a", None), (b"b", None)]), &77_u64);
        let whole = held.elements.remove(0);
        for length in 0..whole.len() {
            let cut = vec![whole[..length].to_vec()];
            let state = State::new().with(INPUTS, ListState::new(Spread::Split, VERSION, cut));
            assert!(load::<u64>(&state).is_err(), "cut at {length}");
        }
        let state = State::new().with(INPUTS, ListState::new(Spread::Split, 2, vec![whole]));
        assert!(load::<u64>(&state).unwrap_err().to_string().contains("version 2"));
    }

    /// [CHK-09] the bytes of version 1, as they will be found in stores.
    #[test]
    fn stored_input_of_version_1_is_understood() {
        let stored: &[u8] = b"\x00\x00\x00\x00\x02\
            \x00\x00\x00\x08flights\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x29\
            \x02\xff\xff\xff\xff\xff\xff\xff\xf9\x00\x00\x00\x01\x00\x00\x00\x00\
            \x00\x00\x00\x01\x00\x00\x00\x00\
            \x00\x00\x00\x02\x00\x00\x00\x02a\x00\x00\x00\x021\x00\x00\x00\x02a\x00\x00\x00\x00\
            \x00\x01\x00\x00\x00\x00\x00\x00\x00\x4d";
        let mut held = Held::of(2);
        held.record(&original(&[(b"a", Some(b"1")), (b"a", None)]), &77_u64);
        assert_eq!(held.elements, [stored]);
    }
}
