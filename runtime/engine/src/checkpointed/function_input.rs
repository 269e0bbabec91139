//! A source written as a function, as a task reads from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_core::batch::RawRecord;
use levada_core::template::{Emit, Emitted, Next, SourceFunction};
use levada_core::time::SplitEvent;
use levada_core::{
    BatchBuilder, CheckpointId, Record, SourceContext, SourceError, SplitId, State, StreamElement, Timestamp,
    TimestampKind,
};

use super::input::{BoxFuture, Input, Read};
use crate::time::{Fed, TimeEvent, Wanted, moved};

/// A source written as a function; its state is its own.
pub(crate) struct Function<F: SourceFunction> {
    function: F,
    uid: Arc<str>,
    subtask: u32,
    /// Emitted, and not handed out yet.
    emitted: Vec<Emitted<F::Item>>,
    /// Counts the records of each split, for their coordinates.
    next: BTreeMap<u32, u64>,
    /// Those that are there.
    live: BTreeSet<u32>,
    /// Those that said of themselves that they are idle.
    idle: BTreeSet<u32>,
    /// Those that are ahead of their group.
    resting: BTreeSet<u32>,
}

/// Records of one run: item, timestamp, split.
type Run<T> = Vec<(T, Option<Timestamp>, u32)>;

impl<F: SourceFunction> Function<F> {
    pub(crate) fn new(uid: &str, subtask: u32, function: F) -> Self {
        Self {
            function,
            uid: uid.into(),
            subtask,
            emitted: Vec::new(),
            next: BTreeMap::new(),
            live: BTreeSet::new(),
            idle: BTreeSet::new(),
            resting: BTreeSet::new(),
        }
    }

    fn split(&self, number: u32) -> SplitId {
        SplitId::new(Arc::clone(&self.uid), number)
    }

    fn hand_out(&mut self, out: &mut Vec<Fed<F::Item>>) {
        let mut run = Vec::new();
        let mut of = self.subtask;
        for emitted in std::mem::take(&mut self.emitted) {
            if let Emitted::Of(split) = emitted {
                of = split.unwrap_or(self.subtask);
                continue;
            }
            if !self.live.contains(&of) && !matches!(emitted, Emitted::End) {
                self.batch(&mut run, out);
                self.add(of, out);
            }
            match emitted {
                Emitted::Idle => self.idle.insert(of),
                _ => self.idle.remove(&of),
            };
            match emitted {
                Emitted::Record(item, timestamp) => run.push((item, timestamp, of)),
                Emitted::Watermark(watermark) => {
                    self.batch(&mut run, out);
                    out.push(Fed::Time(TimeEvent::Watermark(self.split(of), watermark)));
                }
                Emitted::Idle => self.event(of, SplitEvent::MarkIdle, &mut run, out),
                // That of a watermark which says nothing new.
                Emitted::Active => self.event(of, SplitEvent::Watermark, &mut run, out),
                Emitted::End => {
                    self.batch(&mut run, out);
                    self.live.remove(&of);
                    self.resting.remove(&of);
                    out.push(Fed::Time(TimeEvent::Removed(self.split(of))));
                }
                _ => {}
            }
        }
        self.batch(&mut run, out);
    }

    fn event(&mut self, of: u32, event: SplitEvent, run: &mut Run<F::Item>, out: &mut Vec<Fed<F::Item>>) {
        self.batch(run, out);
        out.push(Fed::Time(TimeEvent::Split(self.split(of), event)));
    }

    fn add(&mut self, number: u32, out: &mut Vec<Fed<F::Item>>) {
        self.live.insert(number);
        let at = *self.next.entry(number).or_default();
        out.push(Fed::Time(TimeEvent::Added(self.split(number), at)));
    }

    /// A function has one `next` for all its splits: it rests while all are ahead that are not idle.
    fn is_resting(&self) -> bool {
        !self.resting.is_empty()
            && self.live.iter().all(|split| self.resting.contains(split) || self.idle.contains(split))
    }

    /// Hands out the records so far as a batch.
    fn batch(&mut self, run: &mut Run<F::Item>, out: &mut Vec<Fed<F::Item>>) {
        if run.is_empty() {
            return;
        }
        let mut builder = BatchBuilder::with_capacity(run.len(), 0);
        let mut last = None;
        for (_, timestamp, of) in run.iter() {
            let split = match last {
                Some((number, split)) if number == *of => split,
                _ => builder.split(&self.split(*of)),
            };
            last = Some((*of, split));
            let offset = self.next.entry(*of).or_default();
            builder.push(split, raw(*offset, *timestamp));
            *offset += 1;
        }
        let (batch, positions) = builder.finish();
        let moved = moved(&batch, &positions);
        let (parts, origins) = batch.into_parts();
        let records = origins.into_iter().zip(run.drain(..));
        let records = records.map(|(record, (item, ..))| Record { origin: record.origin, item }).collect();
        out.push(Fed::Element(StreamElement::Batch(parts.with_records(records))));
        out.push(Fed::Time(moved));
    }
}

fn raw(offset: u64, timestamp: Option<Timestamp>) -> RawRecord<'static> {
    let timestamp_kind = match timestamp {
        Some(_) => TimestampKind::Create,
        None => TimestampKind::None,
    };
    RawRecord { offset, timestamp: timestamp.unwrap_or_default(), timestamp_kind, ..RawRecord::default() }
}

impl<F: SourceFunction> Input<F::Item> for Function<F> {
    fn open(&mut self, ctx: SourceContext, restored: State) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async move { self.function.open(ctx, &restored).await })
    }

    fn begin(&mut self, out: &mut Vec<Fed<F::Item>>) {
        for number in self.function.splits().unwrap_or_else(|| vec![self.subtask]) {
            self.add(number, out);
        }
    }

    fn has_its_own_time(&self) -> bool {
        true
    }

    fn knows_its_splits(&self) -> bool {
        true
    }

    /// There is nobody to ask.
    fn steer(&mut self, wanted: Wanted) -> Result<(), SourceError> {
        self.resting.extend(wanted.pause.iter().map(|split| split.index));
        for split in wanted.resume {
            self.resting.remove(&split.index);
        }
        Ok(())
    }

    fn next<'a>(&'a mut self, out: &'a mut Vec<Fed<F::Item>>) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            if self.is_resting() {
                // Until a tick resumes a split: then this future is dropped, and made anew.
                std::future::pending::<()>().await;
            }
            let next = self.function.next(&mut Emit::new(&mut self.emitted)).await?;
            self.hand_out(out);
            Ok(match next {
                Next::End => Read::End,
                _ => Read::More,
            })
        })
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, out: &mut Vec<Fed<F::Item>>) -> State {
        // A call of `next` that was dropped may have emitted before it waited.
        self.hand_out(out);
        self.function.snapshot(checkpoint)
    }

    fn complete(&mut self, checkpoint: CheckpointId) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(self.function.complete(checkpoint))
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.function.close())
    }
}
