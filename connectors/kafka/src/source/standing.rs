//! Where each split stands, for whoever looks: noted by the consumer's thread about once a second, not per record.

use std::time::{Duration, Instant};

use levada_core::time::OpenTransaction;
use levada_core::{SplitId, Timestamp};

use super::events::Client;
use super::producers::{Behind, Finder, Then, Waiting};
use super::splits::{Reading, Splits};
use super::status::SourceStatus;

/// How often the thread notes where the splits stand.
const EVERY: Duration = Duration::from_secs(1);

/// Where a split stands, as of about a second ago.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SplitStanding {
    /// The split.
    pub split: SplitId,
    /// The first offset that was not read yet.
    pub position: u64,
    /// Where a bounded read ends.
    pub stop: Option<u64>,
    /// The end of the partition, open transactions included, as the last fetch told it.
    pub high_watermark: Option<u64>,
    /// The end of what may be read. Known where the split was read up to it, else `None`: it is at or behind the position.
    pub last_stable_offset: Option<u64>,
    /// How long the split has stood at its last stable offset while the high watermark was beyond: an open transaction is in
    /// front.
    pub behind_transaction: Option<Duration>,
    /// Whether that is longer than [`hanging_after`](super::KafkaSourceConfig::hanging_after).
    pub is_hanging: bool,
    /// That transaction, once it was found: looked for when a leader is asked for the sake of idleness, when a bounded read waits,
    /// and when it hangs.
    pub transaction: Option<OpenTransaction>,
    /// The timestamp of the record read last.
    pub last_timestamp: Option<Timestamp>,
    /// Records read since the source was opened.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl SplitStanding {
    /// Returns how many offsets the position is behind the high watermark. Control records and holes count.
    pub fn lag(&self) -> Option<u64> {
        Some(self.high_watermark?.saturating_sub(self.position))
    }

    /// Returns how many offsets the position is behind the last stable offset, where that is known.
    pub fn stable_lag(&self) -> Option<u64> {
        Some(self.last_stable_offset?.saturating_sub(self.position))
    }

    /// Returns how old the record read last is, or nothing where all is read.
    pub fn time_lag(&self, now: Timestamp) -> Option<Duration> {
        match self.lag()? {
            0 => Some(Duration::ZERO),
            _ => Some(now.since(self.last_timestamp?)),
        }
    }
}

/// What is counted of a split, also across its readings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) last_timestamp: Option<Timestamp>,
}

/// Notes the splits' standing now and then.
pub(super) struct Observer {
    hanging_after: Duration,
    finder: Finder,
    last: Option<Instant>,
}

impl Observer {
    pub(super) fn new(hanging_after: Duration) -> Self {
        Self { hanging_after, finder: Finder::default(), last: None }
    }

    /// Has transactions looked for before they are spoken of.
    pub(super) fn find_by(&mut self, finder: Finder) {
        self.finder = finder;
    }

    /// Notes where the splits stand, if it is time.
    pub(super) fn look(&mut self, splits: &mut Splits, client: &Client, status: &SourceStatus) {
        if self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let mut waiting = Vec::new();
        let look = |reading: &mut Reading| {
            let standing = self.standing(reading, client, status);
            waiting.extend(to_be_said(reading, &standing));
            standing
        };
        let standings = splits.iter_mut().map(look).collect();
        status.set_splits(standings);
        self.finder.find(waiting);
    }

    fn standing(&self, reading: &mut Reading, client: &Client, status: &SourceStatus) -> SplitStanding {
        let high_watermark = client.high_watermark(&reading.split);
        let is_at_end = reading.end == Some(reading.next);
        let is_behind = is_at_end && high_watermark.is_some_and(|high| high > reading.next);
        // The end and the high watermark come from two fetches, so a single look proves nothing: it takes two.
        let since = is_behind.then(|| *reading.behind_since.get_or_insert_with(Instant::now));
        reading.behind_since = since;
        let behind_transaction = since.map(|since| since.elapsed()).filter(|behind| *behind >= EVERY / 2);
        let is_hanging = behind_transaction.is_some_and(|behind| behind >= self.hanging_after);
        let transaction =
            behind_transaction.and_then(|_| status.transaction_at(&reading.split, reading.next));
        SplitStanding {
            split: reading.split.clone(),
            position: reading.next,
            stop: reading.stop,
            high_watermark,
            last_stable_offset: reading.end.filter(|_| is_at_end),
            behind_transaction,
            is_hanging,
            transaction,
            last_timestamp: reading.counts.last_timestamp,
            records: reading.counts.records,
            bytes: reading.counts.bytes,
        }
    }
}

/// What is to be said, once of each place where a read waits for a transaction: of a bounded read at once, since somebody waits
/// for its end, of another one when the transaction hangs.
fn to_be_said(reading: &mut Reading, standing: &SplitStanding) -> Option<Behind> {
    let waited = standing.behind_transaction?;
    let SplitStanding { high_watermark, stop, is_hanging, .. } = *standing;
    is_to_be_said(reading, is_hanging).then(|| Behind {
        split: reading.split.clone(),
        position: reading.next,
        then: Then::Say(Waiting { high_watermark, stop, waited, is_hanging }),
    })
}

/// Tells whether a wait for a transaction is news, and notes that it was told.
fn is_to_be_said(reading: &mut Reading, is_hanging: bool) -> bool {
    let told = Some((reading.next, is_hanging));
    let is_news = (reading.stop.is_some() || is_hanging) && reading.reported != told;
    if is_news {
        reading.reported = told;
    }
    is_news
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::handover::ReadingId;

    fn told(stop: Option<u64>, looks: &[(u64, bool)]) -> Vec<bool> {
        let mut splits = Splits::default();
        splits.insert(ReadingId(1), SplitId::new("t", 0), 0, stop);
        let reading = splits.get_mut(&SplitId::new("t", 0)).expect("inserted");
        let look = |&(next, is_hanging)| {
            reading.next = next;
            is_to_be_said(reading, is_hanging)
        };
        looks.iter().map(look).collect()
    }

    /// [SRC-29] one line for each transaction that hangs, however often somebody looks.
    #[test]
    fn a_hanging_transaction_is_said_once() {
        let looks = [(5, false), (5, true), (5, true), (9, false), (9, true)];
        assert_eq!(told(None, &looks), [false, true, false, false, true]);
    }

    /// [SRC-16] a bounded read says at once that it waits, and again when that has become long.
    #[test]
    fn a_bounded_read_says_at_once_that_it_waits() {
        assert_eq!(
            told(Some(20), &[(5, false), (5, false), (5, true), (5, true)]),
            [true, false, true, false]
        );
    }
}
