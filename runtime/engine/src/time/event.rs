//! What the tasks of a source say about time, and what is wanted of the source.

use std::time::Duration;

use levada_core::time::{Question, SplitEvent};
use levada_core::{Batch, Positions, Source, SourceError, SplitId, StreamElement, Timestamp};

/// Something about time that happens between two batches.
#[derive(Debug)]
pub(crate) enum TimeEvent {
    /// A split is read from this position, or again from there.
    Added(SplitId, u64),
    /// A split is not this subtask's any more, or has come to its end.
    Removed(SplitId),
    /// Records of these splits were read, whatever the steps have made of them; with the positions behind them.
    Moved(Vec<(SplitId, u64)>),
    /// How a split stands.
    Split(SplitId, SplitEvent),
    /// The source emitted a watermark for a split.
    Watermark(SplitId, Timestamp),
    /// Whatever was not committed is dropped, and read again: time begins anew.
    Restart,
    /// All splits have come to their ends, and none will be added.
    Ended,
    /// An interval has passed; for a part of it the task waited for others and looked at nothing.
    Tick { held_up: Duration },
}

/// What a source hands out, in order.
#[derive(Debug)]
pub(crate) enum Fed<I> {
    Element(StreamElement<I>),
    Time(TimeEvent),
}

/// What a source is to do.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) ask: Vec<(SplitId, Question)>,
    pub(crate) pause: Vec<SplitId>,
    pub(crate) resume: Vec<SplitId>,
}

impl Wanted {
    pub(crate) fn is_empty(&self) -> bool {
        self.ask.is_empty() && self.pause.is_empty() && self.resume.is_empty()
    }
}

/// Has a source do what is wanted of it.
pub(crate) fn steer(source: &mut impl Source, wanted: Wanted) -> Result<(), SourceError> {
    if !wanted.pause.is_empty() {
        source.pause(&wanted.pause)?;
    }
    if !wanted.resume.is_empty() {
        source.resume(&wanted.resume)?;
    }
    match wanted.ask.is_empty() {
        true => Ok(()),
        false => source.ask(wanted.ask),
    }
}

/// Says of which splits records were read. A position that moved past what holds none says nothing here: an end of
/// partition follows where it matters.
pub(crate) fn moved<T>(batch: &Batch<T>, positions: &Positions) -> TimeEvent {
    let table = batch.splits();
    let (mut has_records, mut found) = (vec![false; table.len()], 0);
    for record in batch.records().iter().rev() {
        let has = &mut has_records[record.origin.split as usize];
        found += usize::from(!*has);
        *has = true;
        if found == table.len() {
            break;
        }
    }
    let read = table.iter().zip(has_records).filter(|(_, has_records)| *has_records);
    let at = read.filter_map(|(split, _)| Some((split.clone(), positions.get(split)?.next)));
    TimeEvent::Moved(at.collect())
}
