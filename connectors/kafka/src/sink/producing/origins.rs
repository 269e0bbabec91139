//! Where messages come from, in one word each.

use std::sync::{Mutex, PoisonError};

use levada_core::SplitId;
use levada_core::batch::Coordinates;

/// So many bits of a word tell the offset within a stretch, those above it the stretch.
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

const _: () = assert!(usize::BITS == 64, "a message takes its place along in 64 bits");

/// The place of a record, as a message takes it along: memory of its own would be taken by one thread and given back by
/// another for each message, which allocators are slow at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin(usize);

impl Origin {
    /// Of a message that was made of no record.
    pub(super) const NONE: Self = Self(0);

    pub(super) fn from_word(word: usize) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> usize {
        self.0
    }
}

/// The stretches that messages were made of, by number.
#[derive(Debug, Default)]
pub(super) struct Origins(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    stretches: Vec<Stretch>,
    /// The one that was asked for last: records of a split come in runs.
    last: usize,
}

/// Offsets of one split that have their upper bits in common.
#[derive(Debug)]
struct Stretch {
    split: SplitId,
    upper: u64,
}

impl Origins {
    /// Shortens the place of a record.
    pub(super) fn shorten(&self, place: &Coordinates) -> Origin {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.stretches.get(known.last).is_some_and(|last| last.holds(place)) {
            known.last = known.stretch_of(place);
        }
        let number = known.last as u64 + 1;
        // More stretches than a word can tell, each of a million million records: the place is not told then.
        match number >> (u64::BITS - OFFSET_BITS) {
            0 => Origin((number << OFFSET_BITS | place.offset & OFFSET_MASK) as usize),
            _ => Origin::NONE,
        }
    }

    /// Returns the place that was shortened.
    pub(super) fn full(&self, origin: Origin) -> Option<Coordinates> {
        let (number, lower) = (origin.0 as u64 >> OFFSET_BITS, origin.0 as u64 & OFFSET_MASK);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stretch = known.stretches.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        Some(Coordinates { split: stretch.split.clone(), offset: stretch.upper | lower })
    }
}

impl Known {
    fn stretch_of(&mut self, place: &Coordinates) -> usize {
        let known = self.stretches.iter().position(|known| known.holds(place));
        known.unwrap_or_else(|| {
            self.stretches.push(Stretch { split: place.split.clone(), upper: place.offset & !OFFSET_MASK });
            self.stretches.len() - 1
        })
    }
}

impl Stretch {
    fn holds(&self, place: &Coordinates) -> bool {
        self.upper == place.offset & !OFFSET_MASK && self.split == place.split
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_comes_back_as_it_was() {
        let origins = Origins::default();
        let place = |stream: &str, index, offset| Coordinates { split: SplitId::new(stream, index), offset };
        let places = [
            place("a", 0, 7),
            place("a", 1, 7),
            place("b", 0, 0),
            place("a", 0, 8),
            place("a", 0, OFFSET_MASK),
            place("a", 0, OFFSET_MASK + 1),
            place("a", 0, u64::MAX),
            place("a", 0, 9),
        ];
        let short: Vec<Origin> = places.iter().map(|place| origins.shorten(place)).collect();
        let full: Vec<_> = short.into_iter().filter_map(|short| origins.full(short)).collect();
        assert_eq!(full, places);
    }

    #[test]
    fn message_of_no_record_has_no_place() {
        let origins = Origins::default();
        assert_eq!(origins.full(Origin::NONE), None);
        origins.shorten(&Coordinates { split: SplitId::new("a", 0), offset: 0 });
        assert_eq!(origins.full(Origin::NONE), None);
    }
}
