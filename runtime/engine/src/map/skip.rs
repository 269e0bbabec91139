//! Records at fault that are passed over by choice, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levada_core::{BoxError, ErrorChain};

use super::{FlatMap, Input, Outputs};

/// Counts the records that steps have skipped. Clones count together.
///
/// ```
/// use levada_engine::{Input, Outputs, Skipped};
/// let skipped = Skipped::default();
/// let parse = |input: Input<'_, ()>, out: &mut Outputs<'_, u32>| {
///     out.push(std::str::from_utf8(input.value().unwrap_or_default())?.parse()?);
///     Ok::<(), levada_core::BoxError>(())
/// };
/// // In a job: `.flat_map("parse", move |_| skipped.skipping(parse))`
/// let _step = skipped.skipping(parse);
/// assert_eq!(skipped.count(), 0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Skipped(Arc<AtomicU64>);

impl Skipped {
    /// Returns the number of records skipped so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes a step that passes over the records which `step` refuses. [SRC-24] Such a record has no output: the position
    /// moves past it, and it counts as skipped in the balance. One line of the log names it and why, without what it holds.
    pub fn skipping<F>(&self, step: F) -> Skipping<F> {
        Skipping { step, skipped: self.clone() }
    }
}

/// A step that passes over records at fault; made by [`Skipped::skipping`].
#[derive(Debug)]
pub struct Skipping<F> {
    step: F,
    skipped: Skipped,
}

impl<I, O, F: FlatMap<I, O>> FlatMap<I, O> for Skipping<F> {
    fn apply(&mut self, input: Input<'_, I>, out: &mut Outputs<'_, O>) -> Result<(), BoxError> {
        let before = out.records.len();
        let Input { batch, record } = input;
        if let Err(reason) = self.step.apply(Input { batch, record }, out) {
            out.records.truncate(before);
            out.is_skipped = true;
            self.skipped.0.fetch_add(1, Ordering::Relaxed);
            let at = batch.coordinates(&record.origin);
            tracing::warn!(%at, reason = %ErrorChain(&*reason), "a record is skipped");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use levada_core::batch::RawRecord;
    use levada_core::{BatchBuilder, SplitId, StreamElement};

    use super::super::{Chain as _, Identity, Then};
    use super::*;

    /// [SRC-24] [SRC-23] in part: skipped by choice, without what the step had made of it already, and counted.
    #[test]
    fn a_record_at_fault_is_skipped_and_counted() {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("t", 0));
        for (offset, value) in [&b"a"[..], b"x", b"b", b"x"].into_iter().enumerate() {
            let raw = RawRecord { offset: offset as u64, value: Some(value), ..RawRecord::default() };
            builder.push(split, raw);
        }
        let step = |input: Input<'_, ()>, out: &mut Outputs<'_, u64>| -> Result<(), BoxError> {
            out.push(input.origin().offset);
            if input.value() == Some(b"x") { Err("at fault".into()) } else { Ok(()) }
        };
        let skipped = Skipped::default();
        let mut chain = Then::new(Box::new(Identity), skipped.skipping(step));
        let produced = chain.process(builder.finish().0);
        let [StreamElement::Batch(batch)] = &produced.elements[..] else { panic!("one batch") };
        let items: Vec<u64> = batch.records().iter().map(|record| record.item).collect();
        assert_eq!((items, skipped.count()), (vec![0, 2], 2));
        assert_eq!((produced.tally.skipped, produced.tally.filtered), (2, 0), "for the balance");
    }
}
