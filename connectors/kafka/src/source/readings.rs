//! Which readings are current: what was read or told for another one is dropped.

use std::collections::{HashMap, HashSet};

use levada_core::batch::RawRecord;
use levada_core::time::SplitEvent;
use levada_core::{BatchBuilder, SplitId};

use super::handover::{News, ReadingId};

/// Which readings are current.
#[derive(Debug, Default)]
pub(super) struct Readings {
    last: u64,
    of: HashMap<SplitId, ReadingId>,
    live: HashSet<ReadingId>,
}

impl Readings {
    pub(super) fn begin(&mut self, split: &SplitId) -> ReadingId {
        self.end(split);
        self.last += 1;
        let id = ReadingId(self.last);
        self.of.insert(split.clone(), id);
        self.live.insert(id);
        id
    }

    pub(super) fn end(&mut self, split: &SplitId) {
        if let Some(id) = self.of.remove(split) {
            self.live.remove(&id);
        }
    }

    /// Returns the current reading of a split.
    pub(super) fn of(&self, split: &SplitId) -> Option<ReadingId> {
        self.of.get(split).copied()
    }

    pub(super) fn is_live(&self, reading: ReadingId) -> bool {
        self.live.contains(&reading)
    }

    /// Returns what is current of the news, if anything is.
    pub(super) fn live_news(&self, news: Vec<News>) -> Option<Vec<(SplitId, SplitEvent)>> {
        let is_live = |(reading, ..): &News| self.is_live(*reading);
        let live = news.into_iter().filter(is_live).map(|(_, split, event)| (split, event));
        let live: Vec<_> = live.collect();
        (!live.is_empty()).then_some(live)
    }

    /// Copies what is current of a batch to `out`, and tells whether there was anything. The batch's permit goes with
    /// the batch: this happens once per change of a split, for less than a batch each.
    pub(super) fn copy_live(
        &self,
        mut builder: BatchBuilder,
        readings: &[ReadingId],
        out: &mut BatchBuilder,
    ) -> bool {
        let (batch, positions) = builder.finish();
        for record in batch.records() {
            let origin = &record.origin;
            if !self.is_live(readings[origin.split as usize]) {
                continue;
            }
            let raw = RawRecord {
                offset: origin.offset,
                timestamp: origin.timestamp,
                timestamp_kind: origin.timestamp_kind,
                leader_epoch: origin.leader_epoch,
                key: batch.key(origin),
                value: batch.value(origin),
            };
            let number = out.split(batch.split(origin));
            out.push_with_headers(number, raw, batch.headers(origin));
        }
        let is_live = |split: &SplitId| self.of.get(split).is_some_and(|id| readings.contains(id));
        let mut has_news = false;
        for (split, position) in positions.into_iter().filter(|(split, _)| is_live(split)) {
            let number = out.split(&split);
            out.advance(number, position);
            has_news = true;
        }
        has_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [SRC-30] [TIM-05] what was told of a split before it was added again says nothing about where it stands now.
    #[test]
    fn news_of_an_earlier_reading_are_dropped() {
        let split = SplitId::new("t", 0);
        let mut readings = Readings::default();
        let old = readings.begin(&split);
        let new = readings.begin(&split);
        let end = |position| SplitEvent::EndOfPartition { position };
        let news = vec![(old, split.clone(), end(9)), (new, split.clone(), end(7))];
        assert_eq!(readings.live_news(news), Some(vec![(split.clone(), end(7))]));
        readings.end(&split);
        assert_eq!(readings.live_news(vec![(new, split, end(7))]), None);
    }
}
