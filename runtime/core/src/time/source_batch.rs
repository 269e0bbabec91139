//! A batch of records at once: the same as one after the other, at the price of a few look-ups.

use super::source_time::{Actions, SourceTime, TimeAction};
use super::split_state::{Reaction, SplitEvent};
use crate::batch::Record;
use crate::clock::Timestamp;
use crate::split::SplitId;

/// What is known of one split of a batch's table.
#[derive(Debug, Clone, Copy)]
enum Met {
    NotYet,
    /// It is not this subtask's any more.
    Stranger,
    /// Its place among the subtask's splits, and the position behind its last record so far.
    At {
        place: usize,
        next: u64,
    },
}

impl<T> SourceTime<T, SplitId> {
    /// Takes in records that were emitted in this order; `table` is what their origins refer to.
    ///
    /// The same as [`record`](Self::record) for each of them, with its origin's timestamp. A record without one only says
    /// that its split is read. `follow` is told what follows, and behind how many of the records. A split is looked up once,
    /// and nothing is allocated for a record.
    pub fn batch(
        &mut self,
        table: &[SplitId],
        records: &[Record<T>],
        now: Timestamp,
        mut follow: impl FnMut(usize, TimeAction<SplitId>),
    ) {
        let mut met = vec![Met::NotYet; table.len()];
        let mut merged = self.merge.merged();
        for (before, record) in records.iter().enumerate() {
            let number = record.origin.split as usize;
            let next = record.origin.offset + 1;
            let is_first = matches!(met[number], Met::NotYet);
            let place = match met[number] {
                Met::At { place, .. } => Ok(place),
                Met::NotYet => self.find(&table[number]),
                Met::Stranger => continue,
            };
            let Ok(place) = place else {
                met[number] = Met::Stranger;
                continue;
            };
            met[number] = Met::At { place, next };
            let known = &mut self.splits[place].1;
            let timestamp = record.timestamp();
            self.late += u64::from(timestamp.is_some_and(|timestamp| timestamp <= merged));
            let watermark = timestamp.and_then(|timestamp| known.generator.on_event(&record.item, timestamp));
            // At one moment, a split's second record changes nothing but its position.
            let reaction = match is_first {
                true => known.state.on(SplitEvent::Record { next }, now),
                false => Reaction::default(),
            };
            if watermark.is_some() || reaction != Reaction::default() {
                let actions = self.behind(&table[number], reaction, watermark, now);
                merged = self.merge.merged();
                actions.into_iter().for_each(|action| follow(before + 1, action));
            }
        }
        self.settle(&met, now);
    }

    fn behind(
        &mut self,
        split: &SplitId,
        reaction: Reaction,
        watermark: Option<Timestamp>,
        now: Timestamp,
    ) -> Actions<SplitId> {
        let mut actions = self.follow(split, reaction, now);
        if let Some(watermark) = watermark {
            self.merge.watermark(split, watermark);
            self.emit(&mut actions);
        }
        actions
    }

    /// Moves the splits behind the last records.
    fn settle(&mut self, met: &[Met], now: Timestamp) {
        for met in met {
            if let Met::At { place, next } = *met {
                let reaction = self.splits[place].1.state.on(SplitEvent::Record { next }, now);
                debug_assert_eq!(reaction, Reaction::default());
            }
        }
    }
}
