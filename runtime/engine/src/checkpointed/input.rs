//! What a source task reads from: a source with splits, or a source written as a function, behind one face.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levada_core::batch::RawRecord;
use levada_core::template::{Emit, Emitted, Next, SourceFunction};
use levada_core::{
    Assignment, Batch, BatchBuilder, CheckpointId, ErrorClass, Polled, Position, Record, Source,
    SourceContext, SourceError, SplitId, State, StreamElement, StreamId, StreamStatus, TimestampKind,
};

use super::positions::{self, Placed};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whether an input has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    More,
    End,
}

/// One subtask's source.
pub(crate) trait Input<I>: Send {
    /// Opens the source with what it had stored.
    fn open(&mut self, ctx: SourceContext, restored: State) -> BoxFuture<'_, Result<(), SourceError>>;

    /// Waits for elements. Cancel safe: what was taken from the source comes with the next call or with
    /// [`Input::snapshot`].
    fn next<'a>(&'a mut self, out: &'a mut Vec<StreamElement<I>>)
    -> BoxFuture<'a, Result<Read, SourceError>>;

    /// Hands out everything that was taken from the source, and returns the state that covers exactly what was handed
    /// out since the open.
    fn snapshot(&mut self, checkpoint: CheckpointId, out: &mut Vec<StreamElement<I>>) -> State;

    /// Tells where it stands, by split, for people.
    fn positions(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn complete(&mut self, checkpoint: CheckpointId) -> BoxFuture<'_, Result<(), SourceError>>;

    fn close(&mut self) -> BoxFuture<'_, ()>;
}

/// A source with splits; its state is their positions.
pub(crate) struct Splits<S> {
    source: S,
    builder: BatchBuilder,
    /// Where the splits stand that were handed out, and those restored ones that nobody was assigned yet.
    places: BTreeMap<SplitId, Placed>,
    /// What this subtask reads, once it was told.
    assigned: Option<HashSet<SplitId>>,
    /// Streams that somebody of this job has read: a split of them that has no position is new.
    known: HashSet<Arc<str>>,
}

impl<S: Source> Splits<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            builder: BatchBuilder::recycling(),
            places: BTreeMap::new(),
            assigned: None,
            known: HashSet::new(),
        }
    }

    /// Hands out what the source has appended, and moves the positions past it.
    fn hand_out(&mut self, out: &mut Vec<StreamElement<()>>) {
        if self.builder.is_empty() {
            return;
        }
        let (batch, positions) = self.builder.finish();
        for (split, position) in positions {
            if let Some(placed) = self.places.get_mut(&split) {
                placed.position = position;
            }
        }
        if !batch.is_empty() {
            out.push(StreamElement::Batch(batch));
        }
    }

    /// Reads assigned splits from where they stand; new ones from their start.
    fn assign(&mut self, assignment: &Assignment) -> Result<(), SourceError> {
        let mut from = Vec::new();
        for stream in &assignment.streams {
            let is_known = !self.known.insert(Arc::clone(&stream.stream));
            for start in &stream.splits {
                let split = SplitId::new(Arc::clone(&stream.stream), start.index);
                if !assignment.splits.contains(&split) {
                    continue;
                }
                // A split that appeared in a stream that is read already is read from its beginning.
                let new = if is_known { &start.earliest } else { &start.start };
                from.push((split.clone(), self.place(split, &stream.id, new)?));
            }
        }
        let assigned = self.assigned.get_or_insert_default();
        assigned.extend(from.iter().map(|(split, _)| split.clone()));
        // The others' positions are the others' state now.
        self.places.retain(|split, _| assigned.contains(split));
        self.source.add(from)
    }

    fn place(&mut self, split: SplitId, stream: &StreamId, new: &Position) -> Result<Position, SourceError> {
        let placed = Placed { stream: stream.clone(), position: new.clone() };
        let known = self.places.entry(split.clone()).or_insert(placed);
        if known.stream != *stream {
            let message = format!(
                "split {split} is of stream {stream}, but the checkpoint holds a position of stream {}: it was made anew, or \
                 another system has one of the name; its positions mean nothing there",
                known.stream
            );
            return Err(SourceError::new(ErrorClass::Fatal, message));
        }
        Ok(known.position.clone())
    }

    fn give_up(&mut self, splits: &[SplitId]) {
        for split in splits {
            self.places.remove(split);
            if let Some(assigned) = &mut self.assigned {
                assigned.remove(split);
            }
        }
    }
}

impl<S: Source> Input<()> for Splits<S> {
    fn open(&mut self, ctx: SourceContext, restored: State) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async move {
            self.places = positions::load(&restored).map_err(|error| {
                SourceError::new(ErrorClass::Fatal, "the checkpoint's positions cannot be read")
                    .caused_by(error)
            })?;
            self.known = self.places.keys().map(|split| Arc::clone(&split.stream)).collect();
            self.source.open(ctx).await
        })
    }

    fn next<'a>(
        &'a mut self,
        out: &'a mut Vec<StreamElement<()>>,
    ) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            let polled = self.source.poll(&mut self.builder).await?;
            self.hand_out(out);
            match polled {
                Polled::Assigned(assignment) => self.assign(&assignment)?,
                Polled::Revoked { splits, .. } | Polled::Lost(splits) => {
                    self.source.remove(&splits)?;
                    self.give_up(&splits);
                }
                Polled::End => return Ok(Read::End),
                // Batches and ends of splits are in the builder already.
                _ => {}
            }
            Ok(Read::More)
        })
    }

    fn snapshot(&mut self, _: CheckpointId, out: &mut Vec<StreamElement<()>>) -> State {
        self.hand_out(out);
        positions::store(&self.places)
    }

    fn positions(&self) -> BTreeMap<String, u64> {
        let own = |split: &SplitId| self.assigned.as_ref().is_none_or(|assigned| assigned.contains(split));
        let places = self.places.iter().filter(|(split, _)| own(split));
        places.map(|(split, placed)| (split.to_string(), placed.position.next)).collect()
    }

    fn complete(&mut self, _: CheckpointId) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.source.close())
    }
}

/// A source written as a function; its state is its own.
pub(crate) struct Function<F: SourceFunction> {
    function: F,
    split: SplitId,
    /// Emitted, and not handed out yet.
    emitted: Vec<Emitted<F::Item>>,
    /// Counts records, for their coordinates.
    next: u64,
    is_idle: bool,
}

impl<F: SourceFunction> Function<F> {
    pub(crate) fn new(uid: &str, subtask: u32, function: F) -> Self {
        Self { function, split: SplitId::new(uid, subtask), emitted: Vec::new(), next: 0, is_idle: false }
    }

    fn hand_out(&mut self, out: &mut Vec<StreamElement<F::Item>>) {
        let mut records = Vec::new();
        for emitted in std::mem::take(&mut self.emitted) {
            if self.is_idle && !matches!(emitted, Emitted::Idle) {
                self.is_idle = false;
                out.push(StreamElement::Status(StreamStatus::Active));
            }
            match emitted {
                Emitted::Record(item, timestamp) => records.push((item, timestamp)),
                Emitted::Watermark(watermark) => {
                    self.batch(&mut records, out);
                    out.push(StreamElement::Watermark(watermark));
                }
                Emitted::Idle if !self.is_idle => {
                    self.batch(&mut records, out);
                    self.is_idle = true;
                    out.push(StreamElement::Status(StreamStatus::Idle));
                }
                _ => {}
            }
        }
        self.batch(&mut records, out);
    }

    /// Hands out the records so far as a batch.
    fn batch(
        &mut self,
        records: &mut Vec<(F::Item, Option<levada_core::Timestamp>)>,
        out: &mut Vec<StreamElement<F::Item>>,
    ) {
        if records.is_empty() {
            return;
        }
        let mut builder = BatchBuilder::with_capacity(records.len(), 0);
        let split = builder.split(&self.split);
        for (_, timestamp) in records.iter() {
            let timestamp_kind = match timestamp {
                Some(_) => TimestampKind::Create,
                None => TimestampKind::None,
            };
            let timestamp = timestamp.unwrap_or_default();
            builder.push(
                split,
                RawRecord { offset: self.next, timestamp, timestamp_kind, ..RawRecord::default() },
            );
            self.next += 1;
        }
        let (parts, origins) = builder.finish().0.into_parts();
        let items = records.drain(..).map(|(item, _)| item);
        let records = origins.into_iter().zip(items);
        let records = records.map(|(record, item)| Record { origin: record.origin, item }).collect();
        let batch: Batch<F::Item> = parts.with_records(records);
        out.push(StreamElement::Batch(batch));
    }
}

impl<F: SourceFunction> Input<F::Item> for Function<F> {
    fn open(&mut self, ctx: SourceContext, restored: State) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async move { self.function.open(ctx, &restored).await })
    }

    fn next<'a>(
        &'a mut self,
        out: &'a mut Vec<StreamElement<F::Item>>,
    ) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            let next = self.function.next(&mut Emit::new(&mut self.emitted)).await?;
            self.hand_out(out);
            Ok(match next {
                Next::End => Read::End,
                _ => Read::More,
            })
        })
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, out: &mut Vec<StreamElement<F::Item>>) -> State {
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
