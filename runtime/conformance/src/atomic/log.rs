//! Splits of a log, owners that write them, and what must be visible.

use std::collections::BTreeMap;

use levada_core::{
    Assignment, AtomicSink, Position, Positions, Sink, SinkError, SplitId, SplitStart, StreamId, StreamStart,
};

use super::AtomicTarget;
use super::wrapped::{Wrapped, shown};
use crate::failure::Finding;
use crate::fuse::Fuse;
use crate::job::context;
use crate::ledger::Ledger;
use crate::numbers::{Range, batch_at};

const STREAM: &str = "conformance";

/// The records of a split have numbers from here: split 2, offset 7 is record 200008.
const SPLIT_SPAN: u64 = 100_000;

pub(super) fn split(index: u32) -> SplitId {
    SplitId::new(STREAM, index)
}

pub(super) fn must<V>(step: &str, outcome: Result<V, SinkError>) -> Result<V, Finding> {
    outcome.map_err(|error| Finding::refused(step, error))
}

/// Checks that a step was refused because somebody else has taken over.
pub(super) fn must_be_fenced<V>(step: &str, outcome: Result<V, SinkError>) -> Result<(), Finding> {
    match outcome {
        Ok(_) => Err(Finding::Accepted { step: step.to_owned() }),
        Err(error) if error.is_fenced() => Ok(()),
        Err(error) => {
            Err(Finding::answer(format!("the class of the refusal to {step}"), "Fenced", error.class))
        }
    }
}

/// Some splits of a stream with `all` splits.
pub(super) fn assignment(splits: &[u32], all: u32, start: u64, earliest: u64) -> Assignment {
    let start = |index| SplitStart { index, start: Position::at(start), earliest: Position::at(earliest) };
    let stream = StreamStart {
        stream: STREAM.into(),
        id: StreamId("conformance/1".into()),
        splits: (0..all).map(start).collect(),
    };
    Assignment {
        splits: splits.iter().map(|index| split(*index)).collect(),
        streams: vec![stream],
        ..Assignment::default()
    }
}

/// A subtask with what it holds.
#[derive(Debug)]
pub(super) struct Owner<S> {
    pub(super) sink: Wrapped<S>,
    /// Where each split stands that it has claimed.
    pub(super) committed: Positions,
    /// Where its interval has moved them.
    pub(super) moved: Positions,
}

/// One history: its log, and what of it must be visible.
pub(super) struct Splits<'a, T> {
    pub(super) target: &'a T,
    pub(super) fuse: Fuse,
    job: String,
    range: Range,
    pub(super) count: u32,
    /// For each split the offsets that are visible: a start, and an end behind the last.
    stored: BTreeMap<u32, (u64, u64)>,
}

impl<'a, T: AtomicTarget> Splits<'a, T> {
    pub(super) fn new(target: &'a T, fuse: Fuse, job: String, range: Range, count: u32) -> Self {
        Self { target, fuse, job, range, count, stored: BTreeMap::new() }
    }

    /// Opens the sinks of a process that starts now.
    pub(super) async fn process(&self, parallelism: u32) -> Result<Vec<Owner<T::Sink>>, Finding> {
        self.fuse.note(format!("a process starts with {parallelism} subtasks"));
        let mut owners = Vec::new();
        for (subtask, sink) in self.target.sinks(parallelism).into_iter().enumerate() {
            let mut sink = Wrapped { sink, fuse: self.fuse.clone() };
            must("open", sink.open(context(&self.job, subtask as u32, parallelism)).await)?;
            owners.push(Owner { sink, committed: Positions::new(), moved: Positions::new() });
        }
        Ok(owners)
    }

    pub(super) async fn one(&self) -> Result<Owner<T::Sink>, Finding> {
        let owner = self.process(1).await?.pop();
        owner.ok_or_else(|| Finding::answer("one sink", "a sink", "none"))
    }

    /// Starts a process whose subtasks claim all splits, in turn.
    pub(super) async fn claimed(&mut self, parallelism: u32) -> Result<Vec<Owner<T::Sink>>, Finding> {
        let mut owners = self.process(parallelism).await?;
        for (subtask, owner) in owners.iter_mut().enumerate() {
            let splits = (0..self.count).filter(|index| index % parallelism == subtask as u32);
            self.claim(owner, &splits.collect::<Vec<_>>()).await?;
        }
        Ok(owners)
    }

    /// Claims splits, and checks where they stand.
    pub(super) async fn claim(&mut self, owner: &mut Owner<T::Sink>, splits: &[u32]) -> Result<(), Finding> {
        let positions = self.claim_blindly(owner, splits).await?;
        for index in splits {
            let found = positions.get(&split(*index)).map_or(0, |position| position.next);
            let expected = self.stored.get(index).map_or(0, |(_, end)| *end);
            if found != expected {
                return Err(Finding::WrongPosition { split: *index, expected, found });
            }
        }
        Ok(())
    }

    async fn claim_blindly(&self, owner: &mut Owner<T::Sink>, splits: &[u32]) -> Result<Positions, Finding> {
        let positions = must("claim", owner.sink.claim(&assignment(splits, self.count, 0, 0)).await)?;
        self.fuse.note(format!("      they stand at {}", shown(&positions)));
        if let Some(missing) = splits.iter().find(|index| positions.get(&split(**index)).is_none()) {
            return Err(Finding::answer(format!("the position of split {missing}"), "one", "none"));
        }
        owner.committed.merge(positions.clone());
        Ok(positions)
    }

    /// Starts a process behind one that has died in a commit of `attempted`: it may have happened or not, as a whole.
    pub(super) async fn recovered(
        &mut self,
        parallelism: u32,
        attempted: &[Positions],
    ) -> Result<Vec<Owner<T::Sink>>, Finding> {
        let mut owners = self.process(parallelism).await?;
        let mut found = Positions::new();
        for (subtask, owner) in owners.iter_mut().enumerate() {
            let splits = (0..self.count).filter(|index| index % parallelism == subtask as u32);
            found.merge(self.claim_blindly(owner, &splits.collect::<Vec<_>>()).await?);
        }
        for moved in attempted {
            let has_happened = moved.iter().any(|(split, position)| {
                found.get(split) == Some(position) && position.next != self.end(split.index)
            });
            if has_happened {
                self.store(moved);
            }
        }
        for (split, position) in &found {
            let expected = self.end(split.index);
            if position.next != expected {
                return Err(Finding::WrongPosition { split: split.index, expected, found: position.next });
            }
        }
        Ok(owners)
    }

    pub(super) fn end(&self, index: u32) -> u64 {
        self.stored.get(&index).map_or(0, |(_, end)| *end)
    }

    /// Writes the next records of a split.
    pub(super) async fn write(
        &self,
        owner: &mut Owner<T::Sink>,
        index: u32,
        count: u64,
    ) -> Result<(), Finding> {
        let id = split(index);
        let from = owner.moved.get(&id).or(owner.committed.get(&id)).map_or(0, |position| position.next);
        self.fuse.note(format!("split {index}, offsets {from} to {}", from + count - 1));
        let item = |offset| self.target.item(self.range.number(record(index, offset)));
        let items = (from..from + count).map(item).collect();
        owner.moved.set(id.clone(), Position::at(from + count));
        must("write", owner.sink.write(batch_at(&id, from, items)).await)
    }

    /// Commits, and takes the outcome over.
    pub(super) async fn commit(&mut self, owner: &mut Owner<T::Sink>) -> Result<(), Finding> {
        must("commit", owner.sink.commit(&owner.moved).await.map(drop))?;
        let moved = std::mem::take(&mut owner.moved);
        self.store(&moved);
        owner.committed.merge(moved);
        Ok(())
    }

    /// Drops what was written since the last commit.
    pub(super) fn discard(&self, owner: &mut Owner<T::Sink>) {
        owner.sink.discard();
        owner.moved = Positions::new();
    }

    fn store(&mut self, moved: &Positions) {
        for (split, position) in moved {
            self.stored.entry(split.index).or_default().1 = position.next;
        }
    }

    /// Notes that a position has moved past records that were not written.
    pub(super) fn skipped(&mut self, index: u32, to: u64) {
        self.stored.insert(index, (to, to));
    }

    /// Checks that exactly what stands before the positions is visible, each once.
    pub(super) async fn check(&self) -> Result<(), Finding> {
        let mut seen = self.range.records(self.target.visible().await.map_err(Finding::Target)?);
        seen.sort_unstable();
        self.fuse.note(format!("{} records are visible", seen.len()));
        Ledger::check_once(&seen)?;
        let of_split = |(index, (start, end)): (&u32, &(u64, u64))| {
            let index = *index;
            (*start..*end).map(move |offset| record(index, offset)).collect::<Vec<_>>()
        };
        let expected = self.stored.iter().flat_map(of_split).collect::<Vec<_>>();
        let early = seen.iter().copied().filter(|record| !expected.contains(record)).collect::<Vec<_>>();
        if !early.is_empty() {
            return Err(Finding::Early { records: early });
        }
        let lost = expected.into_iter().filter(|record| !seen.contains(record)).collect::<Vec<_>>();
        if lost.is_empty() { Ok(()) } else { Err(Finding::Lost { records: lost }) }
    }
}

fn record(index: u32, offset: u64) -> u64 {
    u64::from(index) * SPLIT_SPAN + offset + 1
}

/// Checks what a sink says about its interval.
pub(super) fn check_pending<S, I>(owner: &Owner<S>, has_rows: bool) -> Result<(), Finding>
where
    I: Send + 'static,
    S: AtomicSink<I>,
{
    let rows = AtomicSink::<I>::pending(&owner.sink).rows;
    if (rows > 0) == has_rows {
        return Ok(());
    }
    let expected = if has_rows { "some" } else { "none" };
    Err(Finding::answer("pending rows", expected, rows))
}
