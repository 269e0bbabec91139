//! Steps of user code between source and sink: written per record, run per batch.

mod skip;

use std::fmt;

use levada_core::batch::Coordinates;
use levada_core::{Batch, BoxError, Origin, Record, Refused, Slice, Spares, StreamElement, Tally, Timestamp};

use crate::error::JobError;
use crate::time::{TimeContext, TimeEvent, TimeTerms, Wanted};

pub use skip::{Skipped, Skipping};

/// A record as a step sees it.
#[derive(Debug)]
pub struct Input<'a, T> {
    batch: &'a Batch<T>,
    record: &'a Record<T>,
}

impl<'a, T> Input<'a, T> {
    /// Shows a record of a batch to a step: for running a step by itself.
    pub fn new(batch: &'a Batch<T>, record: &'a Record<T>) -> Self {
        Self { batch, record }
    }

    /// Returns what earlier steps made of the record; `()` straight from the source.
    pub fn item(&self) -> &'a T {
        &self.record.item
    }

    /// Returns the record's coordinates and metadata.
    pub fn origin(&self) -> &'a Origin {
        &self.record.origin
    }

    /// Returns the record's timestamp.
    pub fn timestamp(&self) -> Timestamp {
        self.record.origin.timestamp
    }

    /// Returns the original key; `None` is null.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.batch.key(&self.record.origin)
    }

    /// Returns the original key as a slice that may outlive the batch.
    pub fn key_slice(&self) -> Option<Slice> {
        self.batch.key_slice(&self.record.origin)
    }

    /// Returns the original value; `None` is a tombstone.
    pub fn value(&self) -> Option<&'a [u8]> {
        self.batch.value(&self.record.origin)
    }

    /// Returns the original value as a slice that may outlive the batch.
    pub fn value_slice(&self) -> Option<Slice> {
        self.batch.value_slice(&self.record.origin)
    }

    /// Returns the stream's name and the split's number.
    pub fn split(&self) -> &'a levada_core::SplitId {
        self.batch.split(&self.record.origin)
    }

    /// Walks through the headers: name and value, which may be null.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        self.batch.headers(&self.record.origin)
    }

    /// Names the record's place.
    pub fn coordinates(&self) -> Coordinates {
        self.batch.coordinates(&self.record.origin)
    }
}

/// Takes the outputs of a step for one input.
#[derive(Debug)]
pub struct Outputs<'a, T> {
    origin: Origin,
    records: &'a mut Vec<Record<T>>,
    /// Whether the input was at fault, and is passed over by choice.
    is_skipped: bool,
}

impl<'a, T> Outputs<'a, T> {
    /// Collects outputs for a record of this origin: for running a step by itself.
    pub fn new(origin: Origin, records: &'a mut Vec<Record<T>>) -> Self {
        Self { origin, records, is_skipped: false }
    }

    /// Adds an output. It carries the input's origin and timestamp.
    pub fn push(&mut self, item: T) {
        self.records.push(Record { origin: self.origin, item });
    }
}

/// Turns one record into any number of records, or refuses it.
///
/// Implemented by every `FnMut(Input<I>, &mut Outputs<O>) -> Result<(), BoxError>`.
pub trait FlatMap<I, O>: Send {
    /// Handles one record. Zero outputs still move the split's position past it.
    ///
    /// # Errors
    /// An error refuses the record: it goes on in line as it was read, with the error as the reason.
    fn apply(&mut self, input: Input<'_, I>, out: &mut Outputs<'_, O>) -> Result<(), BoxError>;
}

impl<I, O, F> FlatMap<I, O> for F
where
    F: FnMut(Input<'_, I>, &mut Outputs<'_, O>) -> Result<(), BoxError> + Send,
{
    fn apply(&mut self, input: Input<'_, I>, out: &mut Outputs<'_, O>) -> Result<(), BoxError> {
        self(input, out)
    }
}

/// A step that makes one record of one, or refuses it.
pub(crate) fn one_to_one<I, O, F>(
    step: F,
) -> impl FnMut(Input<'_, I>, &mut Outputs<'_, O>) -> Result<(), BoxError> + Send
where
    F: Fn(Input<'_, I>) -> Result<O, BoxError> + Send,
{
    move |input: Input<'_, I>, out: &mut Outputs<'_, O>| {
        out.push(step(input)?);
        Ok(())
    }
}

/// A step that keeps the records for which `keep` says so.
pub(crate) fn keeping<T, F>(
    keep: F,
) -> impl FnMut(Input<'_, T>, &mut Outputs<'_, T>) -> Result<(), BoxError> + Send
where
    T: Clone,
    F: Fn(&Input<'_, T>) -> bool + Send,
{
    move |input: Input<'_, T>, out: &mut Outputs<'_, T>| {
        if keep(&input) {
            out.push(input.item().clone());
        }
        Ok(())
    }
}

/// What came of a batch: elements in order, and what was counted.
pub(crate) struct Produced<T> {
    pub(crate) elements: Vec<StreamElement<T>>,
    pub(crate) tally: Tally,
    /// Why the job ends behind the elements, if it does.
    pub(crate) failure: Option<JobError>,
}

impl<T> Produced<T> {
    pub(crate) fn new() -> Self {
        Self { elements: Vec::new(), tally: Tally::default(), failure: None }
    }
}

/// All steps between two tasks as one: batches in, elements for whatever comes next out.
pub(crate) trait Chain<I, T>: Send {
    fn process(&mut self, batch: Batch<I>) -> Produced<T>;

    /// Begins to keep time, if one of the steps does that. Comes before everything else.
    fn begin_time(&mut self, _: &TimeContext) -> Option<TimeTerms> {
        None
    }

    /// Tells the step that keeps time of what happens between two batches; what it emits goes through the steps behind it.
    fn time(&mut self, _: TimeEvent, _: &mut Wanted) -> Produced<T> {
        Produced::new()
    }
}

impl<I, T> fmt::Debug for dyn Chain<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain")
    }
}

/// The empty chain.
pub(crate) struct Identity;

impl<T: Send> Chain<T, T> for Identity {
    fn process(&mut self, batch: Batch<T>) -> Produced<T> {
        let mut produced = Produced::new();
        if !batch.is_empty() {
            produced.elements.push(StreamElement::Batch(batch));
        }
        produced
    }
}

/// A chain with one more step behind it.
pub(crate) struct Then<I, M, O, F> {
    before: Box<dyn Chain<I, M>>,
    step: F,
    /// What its batches were in.
    spares: Spares<Record<O>>,
}

impl<I, M, O, F> Then<I, M, O, F> {
    pub(crate) fn new(before: Box<dyn Chain<I, M>>, step: F) -> Self {
        Self { before, step, spares: Spares::default() }
    }
}

impl<I: Send, M: Send, O: Send, F: FlatMap<M, O>> Chain<I, O> for Then<I, M, O, F> {
    fn process(&mut self, batch: Batch<I>) -> Produced<O> {
        let before = self.before.process(batch);
        self.go_on(before)
    }

    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        self.before.begin_time(ctx)
    }

    fn time(&mut self, event: TimeEvent, wanted: &mut Wanted) -> Produced<O> {
        let before = self.before.time(event, wanted);
        self.go_on(before)
    }
}

impl<I, M, O, F: FlatMap<M, O>> Then<I, M, O, F> {
    /// Runs the step over what the ones before have made.
    fn go_on(&mut self, before: Produced<M>) -> Produced<O> {
        let mut produced = Produced { tally: before.tally, failure: before.failure, ..Produced::new() };
        for element in before.elements {
            match element {
                StreamElement::Batch(batch) => apply_step(&mut self.step, batch, &self.spares, &mut produced),
                StreamElement::Refused(refused) => produced.elements.push(StreamElement::Refused(refused)),
                StreamElement::Watermark(watermark) => {
                    produced.elements.push(StreamElement::Watermark(watermark))
                }
                StreamElement::Status(status) => produced.elements.push(StreamElement::Status(status)),
                // A chain makes nothing else.
                _ => {}
            }
        }
        produced
    }
}

/// Runs a step over a batch. A refused record parts the batch, so that order in the stream stays the order of reading.
fn apply_step<I, O>(
    step: &mut impl FlatMap<I, O>,
    batch: Batch<I>,
    spares: &Spares<Record<O>>,
    produced: &mut Produced<O>,
) {
    let parts = batch.parts();
    let mut records = spares.take(batch.len());
    for record in batch.records() {
        let before = records.len();
        let mut outputs = Outputs::new(record.origin, &mut records);
        let outcome = step.apply(Input { batch: &batch, record }, &mut outputs);
        let is_skipped = outputs.is_skipped;
        match outcome {
            Ok(()) => match records.len() - before {
                0 if is_skipped => produced.tally.skipped += 1,
                0 => produced.tally.filtered += 1,
                outputs => produced.tally.expanded += outputs as u64 - 1,
            },
            Err(reason) => {
                records.truncate(before);
                if !records.is_empty() {
                    let accepted = std::mem::replace(&mut records, spares.take(0));
                    produced.elements.push(StreamElement::Batch(parts.with_spare(accepted, spares)));
                }
                let original = Record { origin: record.origin, item: () };
                let refused = Refused::new(parts.clone(), original, reason);
                produced.elements.push(StreamElement::Refused(refused));
            }
        }
    }
    if !records.is_empty() {
        produced.elements.push(StreamElement::Batch(parts.with_spare(records, spares)));
    }
}

#[cfg(test)]
mod tests {
    use levada_core::batch::RawRecord;
    use levada_core::{BatchBuilder, SplitId};

    use super::*;

    fn batch_of(values: &[&[u8]]) -> Batch<()> {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("t", 0));
        for (offset, value) in values.iter().enumerate() {
            builder
                .push(split, RawRecord { offset: offset as u64, value: Some(value), ..RawRecord::default() });
        }
        builder.finish().0
    }

    fn repeat(input: Input<'_, ()>, out: &mut Outputs<'_, u8>) -> Result<(), BoxError> {
        match input.value() {
            Some(b"x") => Err("refused".into()),
            Some(value) => {
                value.iter().for_each(|byte| out.push(*byte));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// [SRC-23] 0..n outputs a record, counted for the balance.
    #[test]
    fn outputs_are_counted_against_inputs() {
        let mut chain = Then::new(Box::new(Identity), repeat);
        let produced = chain.process(batch_of(&[b"ab", b"", b"c"]));
        assert_eq!((produced.tally.expanded, produced.tally.filtered), (1, 1));
        let StreamElement::Batch(batch) = &produced.elements[0] else { panic!("a batch") };
        let seen: Vec<_> = batch.records().iter().map(|record| (record.origin.offset, record.item)).collect();
        assert_eq!(seen, [(0, b'a'), (0, b'b'), (2, b'c')]);
    }

    /// [TPL-23] the engine's part so far: a refused record stays in its place in the stream, with its original bytes.
    #[test]
    fn refused_record_travels_in_line() {
        let mut chain = Then::new(Box::new(Identity), repeat);
        let produced = chain.process(batch_of(&[b"a", b"x", b"b", b"x"]));
        let seen: Vec<String> = produced
            .elements
            .iter()
            .map(|element| match element {
                StreamElement::Batch(batch) => format!("batch of {}", batch.len()),
                StreamElement::Refused(refused) => {
                    let original = refused.original();
                    assert_eq!(original.value(&original.records()[0].origin), Some(&b"x"[..]));
                    format!("{} {}", refused.coordinates(), refused.reason)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, ["batch of 1", "t-0@1 refused", "batch of 1", "t-0@3 refused"]);
    }
}
