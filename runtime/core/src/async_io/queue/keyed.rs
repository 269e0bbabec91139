//! The order of the inputs within a key, and that in which results come between keys.

use std::collections::{HashMap, HashSet, VecDeque};

use super::segments::Segments;

/// Segments into whose results only the oldest input of each key is let. Keys are hashes: two that fall together only wait
/// for each other more than they need to.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    segments: Segments,
    /// The places of each key, in order.
    of_key: HashMap<u64, VecDeque<u64>>,
    /// Those with a result that wait for an older one of their key.
    held: HashSet<u64>,
}

impl Keyed {
    pub(super) fn put(&mut self, place: u64, key: u64) {
        self.segments.put(place);
        self.of_key.entry(key).or_default().push_back(place);
    }

    pub(super) fn mark(&mut self, place: u64) {
        self.segments.mark(place);
    }

    /// The result of an input is there.
    pub(super) fn done(&mut self, place: u64, key: u64) {
        let oldest = self.of_key.get(&key).and_then(|places| places.front());
        match oldest == Some(&place) {
            true => self.segments.release(place),
            false => {
                self.held.insert(place);
            }
        }
    }

    /// The oldest input of a key has left; the next one follows if it can.
    pub(super) fn left(&mut self, key: u64) {
        let Some(places) = self.of_key.get_mut(&key) else { return };
        places.pop_front();
        match places.front() {
            Some(next) if self.held.remove(next) => self.segments.release(*next),
            Some(_) => {}
            None => {
                self.of_key.remove(&key);
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        self.segments.next()
    }
}
