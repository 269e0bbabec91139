//! What a source task reads from: a source with splits, or a source written as a function, behind one face.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levada_core::{
    Assignment, BatchBuilder, CheckpointId, ErrorClass, Polled, Position, Source, SourceContext, SourceError,
    SplitId, State, StreamElement, StreamId,
};

use super::positions::{self, Placed};
use crate::time::{Fed, TimeEvent, Wanted, moved, steer};

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

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
    fn next<'a>(&'a mut self, out: &'a mut Vec<Fed<I>>) -> BoxFuture<'a, Result<Read, SourceError>>;

    /// Is about to be read from.
    fn begin(&mut self, _out: &mut Vec<Fed<I>>) {}

    /// Tells whether it says itself how its time goes.
    fn has_its_own_time(&self) -> bool {
        false
    }

    /// Tells whether it has said which splits it has. Before that nobody knows whether there are any to wait for.
    fn knows_its_splits(&self) -> bool;

    /// Tells whether no snapshot may be taken yet: it would lack starts that are not the same when they are found out again.
    fn owes_starts(&self) -> bool {
        false
    }

    /// Tells, once, that it has begun to read from such starts: nothing of it may be read before they are stored.
    fn take_new_starts(&mut self) -> bool {
        false
    }

    /// Does what whoever keeps time wants.
    fn steer(&mut self, wanted: Wanted) -> Result<(), SourceError>;

    /// Hands out everything that was taken from the source, and returns the state that covers exactly what was handed
    /// out since the open.
    fn snapshot(&mut self, checkpoint: CheckpointId, out: &mut Vec<Fed<I>>) -> State;

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
    has_told: bool,
    /// Splits begin at starts that depend on when they were found out, and nobody was told.
    has_new_starts: bool,
}

impl<S: Source> Splits<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            builder: BatchBuilder::recycling(),
            places: BTreeMap::new(),
            assigned: None,
            known: HashSet::new(),
            has_told: false,
            has_new_starts: false,
        }
    }

    /// Hands out what the source has appended, and moves the positions past it.
    fn hand_out(&mut self, out: &mut Vec<Fed<()>>) {
        if self.builder.is_empty() {
            return;
        }
        let (batch, positions) = self.builder.finish();
        let moved = moved(&batch, &positions);
        for (split, position) in positions {
            if let Some(placed) = self.places.get_mut(&split) {
                placed.position = position;
            }
        }
        if !batch.is_empty() {
            out.push(Fed::Element(StreamElement::Batch(batch)));
            out.push(Fed::Time(moved));
        }
    }

    /// Reads assigned splits from where they stand; new ones from their start.
    fn assign(&mut self, assignment: &Assignment, out: &mut Vec<Fed<()>>) -> Result<(), SourceError> {
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
                let is_momentary = !is_known && self.source.has_momentary_starts();
                self.has_new_starts |= is_momentary && !self.places.contains_key(&split);
                from.push((split.clone(), self.place(split, &stream.id, new)?));
            }
        }
        let assigned = self.assigned.get_or_insert_default();
        assigned.extend(from.iter().map(|(split, _)| split.clone()));
        // The others' positions are the others' state now.
        self.places.retain(|split, _| assigned.contains(split));
        let added = from.iter().map(|(split, at)| TimeEvent::Added(split.clone(), at.next));
        out.extend(added.map(Fed::Time));
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

    fn next<'a>(&'a mut self, out: &'a mut Vec<Fed<()>>) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            let polled = self.source.poll(&mut self.builder).await?;
            self.has_told = true;
            self.hand_out(out);
            match polled {
                Polled::Assigned(assignment) => self.assign(&assignment, out)?,
                Polled::Revoked { splits, .. } | Polled::Lost(splits) => {
                    self.source.remove(&splits)?;
                    self.give_up(&splits);
                    out.extend(splits.into_iter().map(TimeEvent::Removed).map(Fed::Time));
                }
                Polled::EndOfSplit(split, _) => out.push(Fed::Time(TimeEvent::Removed(split))),
                Polled::News(news) => {
                    let events = news.into_iter().map(|(split, event)| TimeEvent::Split(split, event));
                    out.extend(events.map(Fed::Time));
                }
                Polled::End => return Ok(Read::End),
                // Batches are in the builder already.
                _ => {}
            }
            Ok(Read::More)
        })
    }

    fn knows_its_splits(&self) -> bool {
        self.has_told
    }

    fn owes_starts(&self) -> bool {
        !self.has_told && self.source.has_momentary_starts()
    }

    fn take_new_starts(&mut self) -> bool {
        std::mem::take(&mut self.has_new_starts)
    }

    fn steer(&mut self, wanted: Wanted) -> Result<(), SourceError> {
        steer(&mut self.source, wanted)
    }

    fn snapshot(&mut self, _: CheckpointId, out: &mut Vec<Fed<()>>) -> State {
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
