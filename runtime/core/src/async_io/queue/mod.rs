//! Elements of a stream that wait for their results, and the order in which they leave.
//!
//! ```text
//!   put ─▶ [ r1 ✓ | r2 … | W | r3 ✓ ] ─▶ pop        ordered:    r1, then r2 holds up everything
//!            complete(r2)                           unordered:  r1; r3 waits for W, and W for r2
//! ```
//!
//! A *mark* is what stands between inputs and must not be crossed: a watermark, or an offer to commit.

mod fifo;
mod keyed;
mod segments;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use fifo::Fifo;
use keyed::Keyed;
use segments::Segments;

/// In which order results leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// That of the inputs.
    Ordered,
    /// That in which they come, but never across a mark.
    Unordered,
    /// Those of one key in the order of the inputs; others as they come, but never across a mark.
    KeyOrdered,
}

/// The place of an input in its queue; none is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// What has left a queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Left<V, R, M> {
    /// An input with its result.
    Result(V, R),
    /// A mark; everything before it has left.
    Mark(M),
}

/// What is still in a queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Held<'a, V, M> {
    /// An input, whether its result is there or not.
    Input(&'a V),
    /// A mark.
    Mark(&'a M),
}

#[derive(Debug)]
enum Entry<V, R, M> {
    Waiting { value: V, key: u64 },
    Done { value: V, key: u64, result: R },
    Mark { mark: M, takes_room: bool },
}

#[derive(Debug)]
enum Release {
    Fifo(Fifo),
    Segments(Segments),
    Keyed(Keyed),
}

/// Inputs `V`, their results `R` and marks `M`, from when they come in to when they leave.
///
/// ```
/// use levada_core::async_io::{Left, Order, Queue};
///
/// let mut queue = Queue::new(Order::Unordered, 4.try_into().unwrap());
/// let first = queue.put("first", 0);
/// let second = queue.put("second", 0);
/// queue.mark("watermark");
/// queue.complete(second, 2).unwrap();
/// assert_eq!(queue.pop(), Some(Left::Result("second", 2)));
/// assert_eq!(queue.pop(), None, "the watermark waits for the first");
/// queue.complete(first, 1).unwrap();
/// assert_eq!(queue.pop(), Some(Left::Result("first", 1)));
/// assert_eq!(queue.pop(), Some(Left::Mark("watermark")));
/// ```
#[derive(Debug)]
pub struct Queue<V, R, M> {
    order: Order,
    capacity: NonZeroUsize,
    /// In the order of the inputs; the key is the place.
    entries: BTreeMap<u64, Entry<V, R, M>>,
    release: Release,
    next: u64,
    /// How many entries take up room.
    taken: usize,
    waiting: usize,
}

impl<V, R, M> Queue<V, R, M> {
    /// Makes an empty queue. Inputs take up room until they leave, with or without a result, and so do watermarks.
    pub fn new(order: Order, capacity: NonZeroUsize) -> Self {
        let release = match order {
            Order::Ordered => Release::Fifo(Fifo),
            Order::Unordered => Release::Segments(Segments::default()),
            Order::KeyOrdered => Release::Keyed(Keyed::default()),
        };
        Self { order, capacity, entries: BTreeMap::new(), release, next: 0, taken: 0, waiting: 0 }
    }

    /// Tells whether there is no room for another input. Whoever puts one in all the same exceeds the capacity.
    pub fn is_full(&self) -> bool {
        self.taken >= self.capacity.get()
    }

    /// Tells whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns how many inputs, and marks that take up room, are in it.
    pub fn len(&self) -> usize {
        self.taken
    }

    /// Returns how many inputs have no result yet.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts an input at the end. Of the key only [`Order::KeyOrdered`] takes notice.
    pub fn put(&mut self, value: V, key: u64) -> Place {
        self.waiting += 1;
        self.push(Entry::Waiting { value, key }, key)
    }

    fn push(&mut self, entry: Entry<V, R, M>, key: u64) -> Place {
        let place = self.next;
        self.next += 1;
        self.taken += 1;
        self.entries.insert(place, entry);
        match &mut self.release {
            Release::Fifo(_) => {}
            Release::Segments(segments) => segments.put(place),
            Release::Keyed(keyed) => keyed.put(place, key),
        }
        Place(place)
    }

    /// Puts a mark at the end that takes up room like an input: a watermark.
    pub fn mark(&mut self, mark: M) {
        self.push_mark(mark, true);
    }

    /// Puts a mark at the end that takes up no room.
    pub fn mark_for_free(&mut self, mark: M) {
        self.push_mark(mark, false);
    }

    fn push_mark(&mut self, mark: M, takes_room: bool) {
        let place = self.next;
        self.next += 1;
        self.taken += usize::from(takes_room);
        self.entries.insert(place, Entry::Mark { mark, takes_room });
        match &mut self.release {
            Release::Fifo(_) => {}
            Release::Segments(segments) => segments.mark(place),
            Release::Keyed(keyed) => keyed.mark(place),
        }
    }

    /// Returns the last element, if it is a mark: to be merged with another instead of putting that behind it.
    pub fn last_mark_mut(&mut self) -> Option<&mut M> {
        match self.entries.last_entry()?.into_mut() {
            Entry::Mark { mark, .. } => Some(mark),
            _ => None,
        }
    }

    /// Returns an input that has no result yet.
    pub fn waiting_mut(&mut self, place: Place) -> Option<&mut V> {
        match self.entries.get_mut(&place.0) {
            Some(Entry::Waiting { value, .. }) => Some(value),
            _ => None,
        }
    }

    /// Gives an input its result.
    ///
    /// # Errors
    /// It has one already, or has left: the result comes back.
    pub fn complete(&mut self, place: Place, result: R) -> Result<(), R> {
        match self.entries.remove(&place.0) {
            Some(Entry::Waiting { value, key }) => {
                self.entries.insert(place.0, Entry::Done { value, key, result });
                self.waiting -= 1;
                self.release_done(place.0, key);
                Ok(())
            }
            Some(other) => {
                self.entries.insert(place.0, other);
                Err(result)
            }
            None => Err(result),
        }
    }

    fn release_done(&mut self, place: u64, key: u64) {
        match &mut self.release {
            Release::Fifo(_) => {}
            Release::Segments(segments) => segments.release(place),
            Release::Keyed(keyed) => keyed.done(place, key),
        }
    }

    /// Takes out the next element that may leave.
    pub fn pop(&mut self) -> Option<Left<V, R, M>> {
        let place = match &mut self.release {
            Release::Fifo(fifo) => fifo.next(&self.entries)?,
            Release::Segments(segments) => segments.next()?,
            Release::Keyed(keyed) => keyed.next()?,
        };
        match self.entries.remove(&place)? {
            Entry::Done { value, key, result } => {
                self.taken -= 1;
                if let Release::Keyed(keyed) = &mut self.release {
                    keyed.left(key);
                }
                Some(Left::Result(value, result))
            }
            Entry::Mark { mark, takes_room } => {
                self.taken -= usize::from(takes_room);
                Some(Left::Mark(mark))
            }
            // Nothing is released before its result is there.
            waiting @ Entry::Waiting { .. } => {
                self.entries.insert(place, waiting);
                None
            }
        }
    }

    /// Walks through everything that has not left, in the order in which it came in.
    pub fn iter(&self) -> impl Iterator<Item = Held<'_, V, M>> {
        self.entries.values().map(|entry| match entry {
            Entry::Waiting { value, .. } | Entry::Done { value, .. } => Held::Input(value),
            Entry::Mark { mark, .. } => Held::Mark(mark),
        })
    }

    /// Walks through the results that have come and not left, in the order of their inputs.
    pub fn results(&self) -> impl Iterator<Item = (&V, &R)> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Done { value, result, .. } => Some((value, result)),
            _ => None,
        })
    }

    /// Walks through the places of inputs that have no result yet, in their order.
    pub fn waiting_places(&self) -> impl Iterator<Item = (Place, &V)> {
        self.entries.iter().filter_map(|(place, entry)| match entry {
            Entry::Waiting { value, .. } => Some((Place(*place), value)),
            _ => None,
        })
    }

    /// Drops everything in it. Places go on from where they were.
    pub fn clear(&mut self) {
        let next = self.next;
        *self = Self { next, ..Self::new(self.order, self.capacity) };
    }
}
