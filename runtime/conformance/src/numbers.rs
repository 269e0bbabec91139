//! Records: each stands for a number, and each history has a range of its own.

use levada_core::batch::RawRecord;
use levada_core::template::WriteContext;
use levada_core::{Batch, BatchBuilder, Record, SplitId, Timestamp};

/// How many numbers a history has.
const SPAN: u64 = 1 << 20;

/// The numbers of one history among all that were ever written into a target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    base: u64,
}

impl Range {
    /// Gives the histories of a suite their ranges, in turn.
    pub(crate) fn nth(history: u64) -> Self {
        Self { base: (history + 1) * SPAN }
    }

    /// Makes the number of a record, counted from 1.
    pub(crate) fn number(self, record: u64) -> u64 {
        self.base + record
    }

    /// Counts from 1 what is in this range, and drops the rest: it belongs to other histories.
    pub(crate) fn records(self, numbers: Vec<u64>) -> Vec<u64> {
        let of_ours = |number: u64| number.checked_sub(self.base).filter(|record| *record < SPAN);
        numbers.into_iter().filter_map(of_ours).collect()
    }
}

/// Makes a batch of a split, whose first record has this offset.
pub(crate) fn batch_at<T>(split: &SplitId, offset: u64, items: Vec<T>) -> Batch<T> {
    let mut builder = BatchBuilder::new();
    let place = builder.split(split);
    for offset in offset..offset + items.len() as u64 {
        builder.push(place, RawRecord { offset, ..RawRecord::default() });
    }
    let (parts, records) = builder.finish().0.into_parts();
    let with = |(record, item): (Record<()>, T)| Record { origin: record.origin, item };
    parts.with_records(records.into_iter().zip(items).map(with).collect())
}

/// Makes a batch whose place in its source does not matter.
pub(crate) fn batch<T>(items: Vec<T>) -> Batch<T> {
    batch_at(&SplitId::new("conformance", 0), 0, items)
}

/// Time stands still.
pub(crate) const TIMES: WriteContext =
    WriteContext { processing_time: Timestamp(0), watermark: Timestamp::MIN };
