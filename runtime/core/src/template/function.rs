//! A source written as a function: for what has no splits of its own.

use std::fmt;
use std::future::Future;

use crate::checkpoint::CheckpointId;
use crate::clock::Timestamp;
use crate::error::SourceError;
use crate::source::SourceContext;
use crate::state::State;

/// What a call to [`SourceFunction::next`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// There may be more at once.
    More,
    /// The source has come to its end.
    End,
}

/// Something that a source has emitted, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Emitted<T> {
    /// A record; without a timestamp it has none.
    Record(T, Option<Timestamp>),
    /// No record with this timestamp or an earlier one will follow.
    Watermark(Timestamp),
    /// No record will follow for a while; a record, or a watermark, ends it.
    Idle,
    /// Records are to be expected again.
    Active,
    /// This split has come to its end.
    End,
    /// What follows is of this split; of the subtask as a whole where it is `None`, as at the beginning.
    Of(Option<u32>),
}

/// Takes what a source emits.
#[derive(Debug)]
pub struct Emit<'a, T> {
    emitted: &'a mut Vec<Emitted<T>>,
}

impl<'a, T> Emit<'a, T> {
    /// Collects into a vector.
    pub fn new(emitted: &'a mut Vec<Emitted<T>>) -> Self {
        Self { emitted }
    }

    /// Emits a record without a timestamp.
    pub fn record(&mut self, item: T) {
        self.emitted.push(Emitted::Record(item, None));
    }

    /// Emits a record of a certain time.
    pub fn record_at(&mut self, item: T, timestamp: Timestamp) {
        self.emitted.push(Emitted::Record(item, Some(timestamp)));
    }

    /// Promises that no record with this timestamp or an earlier one will follow.
    pub fn watermark(&mut self, watermark: Timestamp) {
        self.emitted.push(Emitted::Watermark(watermark));
    }

    /// Says that nothing will follow for a while, so that others need not wait for this source's watermark. [TIM-07]
    pub fn idle(&mut self) {
        self.emitted.push(Emitted::Idle);
    }

    /// Says that records are to be expected again. A record, or a watermark, says so, too.
    pub fn active(&mut self) {
        self.emitted.push(Emitted::Active);
    }

    /// Emits for one of several splits, each with a watermark of its own. `number` names it in the whole job: two subtasks
    /// do not share a split. One that is new is there from now on, and holds the watermark back until it reports.
    pub fn split(&mut self, number: u32) -> EmitSplit<'_, T> {
        self.emitted.push(Emitted::Of(Some(number)));
        EmitSplit { emitted: self.emitted }
    }
}

/// Takes what a source emits for one of its splits.
#[derive(Debug)]
pub struct EmitSplit<'a, T> {
    emitted: &'a mut Vec<Emitted<T>>,
}

impl<T> EmitSplit<'_, T> {
    /// Emits a record without a timestamp.
    pub fn record(&mut self, item: T) {
        self.emitted.push(Emitted::Record(item, None));
    }

    /// Emits a record of a certain time.
    pub fn record_at(&mut self, item: T, timestamp: Timestamp) {
        self.emitted.push(Emitted::Record(item, Some(timestamp)));
    }

    /// Promises that no record of the split with this timestamp or an earlier one will follow. The source's watermark is
    /// the smallest of its splits'.
    pub fn watermark(&mut self, watermark: Timestamp) {
        self.emitted.push(Emitted::Watermark(watermark));
    }

    /// Says that nothing of the split will follow for a while. [TIM-07]
    pub fn idle(&mut self) {
        self.emitted.push(Emitted::Idle);
    }

    /// Says that records of the split are to be expected again.
    pub fn active(&mut self) {
        self.emitted.push(Emitted::Active);
    }

    /// Says that the split has come to its end: nobody waits for it any more.
    pub fn end(&mut self) {
        self.emitted.push(Emitted::End);
    }
}

impl<T> Drop for EmitSplit<'_, T> {
    fn drop(&mut self) {
        self.emitted.push(Emitted::Of(None));
    }
}

/// Makes records out of itself: a counter, a sensor, a test.
///
/// Everything takes `&mut self`, so a snapshot falls between two calls of `next` and covers exactly what they have
/// emitted: what elsewhere needs a lock, the borrow checker sees to.
pub trait SourceFunction: Send + fmt::Debug {
    /// What it emits.
    type Item: Send + 'static;

    /// Prepares. Called once, first, with the state that this subtask had stored, or that it was dealt after a change of
    /// parallelism; empty at the first start.
    fn open(
        &mut self,
        ctx: SourceContext,
        restored: &State,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Returns the splits that this subtask has from its start, where it tells them apart ([`Emit::split`]). Asked once, after
    /// `open`. `None`, unless overridden: the subtask is one split. None of several makes it idle at once.
    fn splits(&self) -> Option<Vec<u32>> {
        None
    }

    /// Waits until there is something to emit, and emits it: a few records, not all there are, so that a checkpoint need not
    /// wait. Never called again after [`Next::End`].
    ///
    /// Must be cancel safe: when the future is dropped, what it was about to emit must come with the next call. State is
    /// changed together with the emission, with no await in between.
    fn next(
        &mut self,
        out: &mut Emit<'_, Self::Item>,
    ) -> impl Future<Output = Result<Next, SourceError>> + Send;

    /// Returns the state that restores this point. Empty, unless overridden: the source starts anew after a failure.
    fn snapshot(&mut self, checkpoint: CheckpointId) -> State {
        let _ = checkpoint;
        State::new()
    }

    /// Learns that a checkpoint, and every one before it, is complete. May never be called for some.
    ///
    /// # Errors
    /// An error fails the job; the checkpoint stays complete.
    fn complete(&mut self, checkpoint: CheckpointId) -> impl Future<Output = Result<(), SourceError>> + Send {
        let _ = checkpoint;
        async { Ok(()) }
    }

    /// Releases everything. Called once, last, also after an error or a cancellation.
    fn close(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
