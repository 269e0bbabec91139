//! The splits that the consumer's thread reads: where each stands, and where it ends.
//!
//! The thread asks once per record which split it belongs to. Records come in runs of one partition, so the last answer
//! is kept; other answers are kept by the client's topic pointer, so that no name is compared per record.

use std::collections::HashMap;
use std::time::Instant;

use levada_core::time::SplitEvent;
use levada_core::{BatchBuilder, Position, SplitId};

use super::handover::{News, ReadingId};
use super::standing::Counts;

/// One split, read since one call of `add`.
pub(super) struct Reading {
    pub(super) id: ReadingId,
    pub(super) split: SplitId,
    /// The first offset that was not yet appended; what lies below is stale.
    pub(super) next: u64,
    /// Where a bounded read ends, exclusive.
    pub(super) stop: Option<u64>,
    /// Whether the engine wants it to rest.
    pub(super) rests: bool,
    /// Whether the user wants it to rest.
    pub(super) is_paused: bool,
    /// Whether the client reported an error of it, and fetching has not been started again since.
    pub(super) is_failing: bool,
    /// The end that the client told last: under `read_committed` the last stable offset.
    pub(super) end: Option<u64>,
    /// Since when the split has stood at its end although the partition goes on.
    pub(super) behind_since: Option<Instant>,
    /// The place of which was said that reading waits there, and whether it was said to hang.
    pub(super) reported: Option<(u64, bool)>,
    pub(super) counts: Counts,
    /// The split's number in the builder with this serial number.
    number: Option<(u64, u32)>,
}

impl Reading {
    /// Tells whether anybody wants it to rest.
    pub(super) fn is_resting(&self) -> bool {
        self.rests || self.is_paused
    }
}

/// The splits that are read now.
#[derive(Default)]
pub(super) struct Splits {
    readings: Vec<Reading>,
    /// What was counted of splits that are read no more.
    past: HashMap<SplitId, Counts>,
    by_key: HashMap<(usize, i32), Option<usize>>,
    last: Option<((usize, i32), Option<usize>)>,
}

impl Splits {
    /// Starts a reading. The split must not be read yet.
    pub(super) fn insert(&mut self, id: ReadingId, split: SplitId, next: u64, stop: Option<u64>) {
        self.forget_keys();
        let counts = self.past.get(&split).copied().unwrap_or_default();
        self.readings.push(Reading {
            id,
            split,
            next,
            stop,
            rests: false,
            is_paused: false,
            is_failing: false,
            end: None,
            behind_since: None,
            reported: None,
            counts,
            number: None,
        });
    }

    /// Ends a reading and returns it.
    pub(super) fn remove(&mut self, split: &SplitId) -> Option<Reading> {
        self.forget_keys();
        let index = self.readings.iter().position(|reading| reading.split == *split)?;
        let reading = self.readings.swap_remove(index);
        self.past.insert(reading.split.clone(), reading.counts);
        Some(reading)
    }

    /// Returns the reading of a split.
    pub(super) fn get_mut(&mut self, split: &SplitId) -> Option<&mut Reading> {
        self.readings.iter_mut().find(|reading| reading.split == *split)
    }

    /// Returns the reading of a partition by name.
    pub(super) fn named_mut(&mut self, topic: &str, partition: i32) -> Option<&mut Reading> {
        let index = self.position(topic, partition)?;
        self.readings.get_mut(index)
    }

    /// Returns the reading of the partition that the client calls `key`; `topic` tells the name when it is not known.
    #[inline]
    pub(super) fn find<'n>(
        &mut self,
        key: (usize, i32),
        topic: impl FnOnce() -> &'n str,
    ) -> Option<&mut Reading> {
        let index = match self.last {
            Some((last, index)) if last == key => index,
            _ => self.look_up(key, topic()),
        };
        self.readings.get_mut(index?)
    }

    fn look_up(&mut self, key: (usize, i32), topic: &str) -> Option<usize> {
        let index = match self.by_key.get(&key) {
            Some(&index) => index,
            None => {
                let index = self.position(topic, key.1);
                self.by_key.insert(key, index);
                index
            }
        };
        self.last = Some((key, index));
        index
    }

    fn position(&self, topic: &str, partition: i32) -> Option<usize> {
        let partition = u32::try_from(partition).ok()?;
        self.readings
            .iter()
            .position(|reading| reading.split.index == partition && *reading.split.stream == *topic)
    }

    /// The client may give a topic another pointer once none of its partitions is assigned, and another client does.
    pub(super) fn forget_keys(&mut self) {
        self.by_key.clear();
        self.last = None;
    }

    /// Returns how many records were read of the splits that are read now.
    pub(super) fn records(&self) -> u64 {
        self.readings.iter().map(|reading| reading.counts.records).sum()
    }

    /// Walks through all readings.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Reading> {
        self.readings.iter()
    }

    /// The same, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Reading> {
        self.readings.iter_mut()
    }
}

/// What the thread collects for the next handover.
#[derive(Default)]
pub(super) struct Building {
    pub(super) builder: BatchBuilder,
    /// The reading of each split of the builder's table.
    pub(super) readings: Vec<ReadingId>,
    /// How splits stand; told after the batch that was filled meanwhile.
    pub(super) news: Vec<News>,
    /// Splits that have ended; told after the batch that holds their last position.
    pub(super) ended: Vec<(ReadingId, SplitId, Position)>,
    /// Counts builders, so that a number from an earlier one is not used again.
    serial: u64,
}

impl Building {
    /// Returns the number of a reading's split in the builder.
    #[inline]
    pub(super) fn number(&mut self, reading: &mut Reading) -> u32 {
        match reading.number {
            Some((serial, number)) if serial == self.serial => number,
            _ => self.add_number(reading),
        }
    }

    fn add_number(&mut self, reading: &mut Reading) -> u32 {
        let number = self.builder.split(&reading.split);
        // The table grows by one per reading: the builder is handed over before a split gets another reading.
        debug_assert_eq!(number as usize, self.readings.len());
        self.readings.push(reading.id);
        reading.number = Some((self.serial, number));
        number
    }

    /// Tells whether there is nothing to hand over.
    pub(super) fn is_empty(&self) -> bool {
        self.readings.is_empty() && self.news.is_empty() && self.ended.is_empty()
    }

    /// Notes how a split stands. Of two ends in a row the later one counts.
    pub(super) fn tell(&mut self, reading: &Reading, event: SplitEvent) {
        let is_end = |event: &SplitEvent| matches!(event, SplitEvent::EndOfPartition { .. });
        match self.news.last_mut() {
            Some((id, _, last)) if *id == reading.id && is_end(last) && is_end(&event) => *last = event,
            _ => self.news.push((reading.id, reading.split.clone(), event)),
        }
    }

    /// Notes the same of all splits.
    pub(super) fn tell_of_all(&mut self, splits: &Splits, event: SplitEvent) {
        splits.iter().for_each(|reading| self.tell(reading, event));
    }

    /// Takes what was collected and starts anew, with room for as much again: in a steady flow one batch is like the
    /// other, and growing to its size step by step would copy it once more.
    pub(super) fn take(&mut self) -> Building {
        let serial = self.serial + 1;
        let builder = BatchBuilder::with_capacity(self.builder.len(), self.builder.bytes());
        std::mem::replace(self, Building { serial, builder, ..Building::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(indices: &[u32]) -> Splits {
        let mut splits = Splits::default();
        for &index in indices {
            splits.insert(ReadingId(u64::from(index)), SplitId::new("t", index), 0, None);
        }
        splits
    }

    #[test]
    fn found_by_key_after_the_name_is_known() {
        let mut splits = splits(&[4, 7]);
        assert_eq!(splits.find((1, 7), || "t").map(|reading| reading.id), Some(ReadingId(7)));
        assert_eq!(splits.find((1, 4), || "t").map(|reading| reading.id), Some(ReadingId(4)));
        let unasked = || -> &str { panic!("the last key's name is not asked for") };
        assert_eq!(splits.find((1, 4), unasked).map(|reading| reading.id), Some(ReadingId(4)));
        assert!(splits.find((2, 7), || "other").is_none());
    }

    #[test]
    fn removal_moves_no_record_to_another_split() {
        let mut splits = splits(&[0, 1, 2]);
        assert!(splits.find((1, 2), || "t").is_some());
        assert!(splits.remove(&SplitId::new("t", 0)).is_some());
        assert_eq!(splits.find((1, 2), || "t").map(|reading| reading.id), Some(ReadingId(2)));
        assert!(splits.find((1, 0), || "t").is_none());
    }

    #[test]
    fn of_two_ends_in_a_row_the_later_one_is_told() {
        let mut splits = splits(&[0, 1]);
        let mut building = Building::default();
        let end = |position| SplitEvent::EndOfPartition { position };
        for (index, event) in
            [(0, end(3)), (0, end(5)), (1, end(2)), (0, SplitEvent::FetchFailed), (0, end(5))]
        {
            building.tell(splits.named_mut("t", index).expect("inserted"), event);
        }
        let told: Vec<_> = building.news.iter().map(|(id, _, event)| (id.0, *event)).collect();
        assert_eq!(told, [(0, end(5)), (1, end(2)), (0, SplitEvent::FetchFailed), (0, end(5))]);
    }

    #[test]
    fn numbers_of_an_earlier_builder_are_not_used_again() {
        let mut splits = splits(&[0, 1]);
        let mut building = Building::default();
        for index in [0, 1] {
            let reading = splits.named_mut("t", index).expect("inserted");
            assert_eq!(building.number(reading), index as u32);
        }
        building.take();
        let reading = splits.named_mut("t", 1).expect("inserted");
        assert_eq!(building.number(reading), 0);
        assert_eq!(building.readings, [ReadingId(1)]);
    }
}
