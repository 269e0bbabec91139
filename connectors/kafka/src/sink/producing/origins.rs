//! Where messages come from, in few bytes.

use std::sync::{Arc, Mutex, PoisonError};

use levada_core::SplitId;
use levada_core::batch::Coordinates;

/// The splits that messages were made of, by number. A message that carried its split's name would share a count of references
/// with all others, which two threads would change for each message.
#[derive(Debug, Default)]
pub(super) struct Origins(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    splits: Vec<SplitId>,
    /// The one that was asked for last: records of a split come in runs.
    last: usize,
}

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    split: u32,
    offset: u64,
}

impl Origins {
    /// Shortens the place of a record.
    pub(super) fn shorten(&self, place: &Coordinates) -> Origin {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.splits.get(known.last).is_some_and(|last| is_same(last, &place.split)) {
            known.last = known.place_of(&place.split);
        }
        Origin { split: u32::try_from(known.last).unwrap_or(u32::MAX), offset: place.offset }
    }

    /// Returns the place that was shortened.
    pub(super) fn full(&self, origin: Origin) -> Option<Coordinates> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let split = known.splits.get(origin.split as usize)?.clone();
        Some(Coordinates { split, offset: origin.offset })
    }
}

impl Known {
    fn place_of(&mut self, split: &SplitId) -> usize {
        let known = self.splits.iter().position(|known| known == split);
        known.unwrap_or_else(|| {
            self.splits.push(split.clone());
            self.splits.len() - 1
        })
    }
}

/// Names are compared only where they are not the very same text.
fn is_same(one: &SplitId, other: &SplitId) -> bool {
    one.index == other.index && (Arc::ptr_eq(&one.stream, &other.stream) || one.stream == other.stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_comes_back_as_it_was() {
        let origins = Origins::default();
        let place = |stream: &str, index, offset| Coordinates { split: SplitId::new(stream, index), offset };
        let places = [place("a", 0, 7), place("a", 1, 7), place("b", 0, 9), place("a", 0, 8)];
        let short: Vec<Origin> = places.iter().map(|place| origins.shorten(place)).collect();
        let full: Vec<_> = short.into_iter().filter_map(|short| origins.full(short)).collect();
        assert_eq!(full, places);
    }
}
