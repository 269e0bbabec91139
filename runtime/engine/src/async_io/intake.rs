//! What has come and waits for room, in front of a flight.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use levada_core::async_io::{Held, Order};
use levada_core::batch::{BatchParts, Coordinates};
use levada_core::{Batch, Origin, Record, Refused};

use super::flight::Flight;

/// Where an input comes from.
#[derive(Debug, Clone)]
pub(crate) struct Tag {
    pub(crate) parts: Arc<BatchParts>,
    pub(crate) origin: Origin,
}

impl Tag {
    /// Returns the record as it was read: a batch of one.
    pub(crate) fn original(&self) -> Batch<()> {
        self.parts.with_records(vec![Record { origin: self.origin, item: () }])
    }

    pub(crate) fn coordinates(&self) -> Coordinates {
        let split = self.parts.splits()[self.origin.split as usize].clone();
        Coordinates { split, offset: self.origin.offset }
    }

    pub(crate) fn refused(&self, reason: impl Into<levada_core::BoxError>) -> Refused {
        let record = Record { origin: self.origin, item: () };
        Refused::new((*self.parts).clone(), record, reason.into())
    }
}

/// What stands in line between records.
pub(crate) trait InLine: Sized {
    /// Whether it takes up capacity.
    fn takes_room(&self) -> bool;

    /// Whether no input follows.
    fn is_end(&self) -> bool;

    /// Takes in what stands right behind it, or gives it back.
    fn merge(&mut self, behind: Self) -> Option<Self> {
        Some(behind)
    }
}

/// An element that waits for room.
enum Waiting<A, M> {
    Record(Arc<A>, Tag, Measured),
    Mark(M),
}

/// What is known of a record without looking into it.
#[derive(Debug, Clone, Copy)]
struct Measured {
    key: u64,
    bytes: usize,
    arrived: Duration,
}

/// A flight with what waits in front of it.
pub(crate) struct Intake<A, O, M> {
    pub(crate) flight: Flight<A, O, Tag, M>,
    by_record_key: bool,
    waiting: VecDeque<Waiting<A, M>>,
    /// How many of them are records.
    records: usize,
}

impl<A, O, M: InLine> Intake<A, O, M> {
    pub(crate) fn new(flight: Flight<A, O, Tag, M>, order: Order) -> Self {
        let by_record_key = order == Order::KeyOrdered && !flight.operator.settings().has_own_key();
        Self { flight, by_record_key, waiting: VecDeque::new(), records: 0 }
    }

    /// Tells whether everything that has come has found room.
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tells whether everything that has come has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_clear() && self.flight.operator.is_empty()
    }

    pub(crate) fn batch(&mut self, batch: Batch<A>) {
        let arrived = self.flight.now();
        let measure = |record: &Record<A>| {
            let origin = &record.origin;
            let (key, value) = (batch.key(origin), batch.value(origin));
            let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
            let key = match self.by_record_key {
                true => hash_of(key),
                false => self.flight.operator.settings().key_of(&record.item).unwrap_or_default(),
            };
            Measured { key, bytes, arrived }
        };
        let measured: Vec<Measured> = batch.records().iter().map(measure).collect();
        let (parts, records) = batch.into_parts();
        let parts = Arc::new(parts);
        self.records += records.len();
        for (Record { origin, item }, measured) in records.into_iter().zip(measured) {
            let tag = Tag { parts: Arc::clone(&parts), origin };
            self.waiting.push_back(Waiting::Record(Arc::new(item), tag, measured));
        }
    }

    pub(crate) fn mark(&mut self, mark: M) {
        self.waiting.push_back(Waiting::Mark(mark));
    }

    /// Lets in what there is room for, and makes the calls that are due. Tells whether there was something to let in.
    pub(crate) fn fill(&mut self) -> bool {
        let mut has_let_in = false;
        while let Some(next) = self.waiting.pop_front() {
            let operator = &mut self.flight.operator;
            let has_room = match &next {
                Waiting::Record(_, _, measured) => operator.has_room(measured.bytes),
                Waiting::Mark(mark) => !mark.takes_room() || operator.has_room(0),
            };
            if !has_room {
                self.waiting.push_front(next);
                break;
            }
            has_let_in = true;
            match next {
                Waiting::Record(input, tag, Measured { key, bytes, arrived }) => {
                    self.records -= 1;
                    let now = self.flight.now();
                    self.flight.operator.accept(input, tag, key, bytes, arrived, now);
                }
                Waiting::Mark(mark) => self.let_in(mark),
            }
        }
        self.flight.call();
        self.flight.publish(self.records);
        has_let_in
    }

    fn let_in(&mut self, mark: M) {
        let now = self.flight.now();
        let operator = &mut self.flight.operator;
        let mark = match operator.last_mark_mut() {
            Some(last) => last.merge(mark),
            None => Some(mark),
        };
        let Some(mark) = mark else { return };
        let is_end = mark.is_end();
        match mark.takes_room() {
            true => operator.mark(mark),
            false => operator.mark_for_free(mark),
        }
        if is_end {
            operator.end(now);
        }
    }

    /// Walks through everything that has not left, in the order in which it came.
    pub(crate) fn for_each_held<'a>(&'a self, mut each: impl FnMut(HeldElement<'a, A, M>)) {
        for held in self.flight.operator.iter() {
            match held {
                Held::Input(pending) => each(HeldElement::Record(&pending.input, &pending.tag)),
                Held::Mark(mark) => each(HeldElement::Mark(mark)),
            }
        }
        for waiting in &self.waiting {
            match waiting {
                Waiting::Record(input, tag, _) => each(HeldElement::Record(input, tag)),
                Waiting::Mark(mark) => each(HeldElement::Mark(mark)),
            }
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.records = 0;
        self.flight.clear();
    }
}

/// What has not left.
pub(crate) enum HeldElement<'a, A, M> {
    Record(&'a A, &'a Tag),
    Mark(&'a M),
}

/// Records without a key are those of one key.
fn hash_of(key: Option<&[u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
