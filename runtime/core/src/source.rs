//! The contract of a source.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::BatchBuilder;
use crate::budget::Budget;
use crate::error::SourceError;
use crate::split::{Position, Positions, SplitId, StreamId};
use crate::time::{Question, SplitEvent};

/// What a source is told when it is opened.
#[derive(Debug, Clone)]
pub struct SourceContext {
    /// The number of this subtask, from zero.
    pub subtask: u32,
    /// How many subtasks read together.
    pub parallelism: u32,
    /// The byte budget of the process.
    pub budget: Budget,
}

/// What a poll came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polled {
    /// Records or positions were appended.
    Batch,
    /// Splits are this subtask's now; they are read once the engine has added them with their positions.
    Assigned(Assignment),
    /// Splits are being taken away in order; what was read of them should be committed before the bound passes.
    Revoked {
        /// The splits.
        splits: Vec<SplitId>,
        /// How long the source can wait.
        within: Duration,
    },
    /// Splits belong to somebody else already; nothing of them may be committed.
    Lost(Vec<SplitId>),
    /// A bounded read of a split came to its end; its last position was appended.
    EndOfSplit(SplitId, Position),
    /// How splits stand, beyond their records: at their ends, blocked, or what their leaders answered. What was appended
    /// before stands before it. [TIM-05]
    News(Vec<(SplitId, SplitEvent)>),
    /// Nothing to read for now.
    Idle,
    /// Every split came to its end.
    End,
}

/// Splits that became this subtask's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assignment {
    /// The splits of this subtask.
    pub splits: Vec<SplitId>,
    /// Every stream these splits belong to, with **all** its splits: the first claim of a stream stores the start of
    /// each, so that a start such as "latest" means one moment for the whole stream.
    pub streams: Vec<StreamStart>,
    /// Where a bounded read of these splits ends, for whoever shows how far it is.
    pub ends: Positions,
}

/// Where the splits of one stream start when nothing is stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStart {
    /// The stream's name.
    pub stream: Arc<str>,
    /// The stream's identity.
    pub id: StreamId,
    /// All its splits.
    pub splits: Vec<SplitStart>,
}

/// Where one split starts when nothing is stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitStart {
    /// The number of the split.
    pub index: u32,
    /// The configured start, resolved to a position.
    pub start: Position,
    /// The earliest position: where a split starts that appeared after the stream was first claimed.
    pub earliest: Position,
}

/// Reads records.
///
/// `poll` takes `&mut self`, and so does everything that looks at positions: the borrow checker is the lock between
/// emitting and observing.
pub trait Source: Send + fmt::Debug {
    /// Connects and finds the splits. Called once, before anything else.
    fn open(&mut self, ctx: SourceContext) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Tells whether the starts of splits depend on when they were found out, as those of "latest" and of "at this time" do:
    /// found out again, they may be others. Asked once the source is open.
    ///
    /// A job with checkpoints has such starts in a checkpoint before it reads from them, and takes none before the source has
    /// said which splits it has. The first poll of such a source therefore waits for no record.
    fn has_momentary_starts(&self) -> bool {
        false
    }

    /// Waits for something to happen, and appends records to `out`.
    ///
    /// Cancel safe: dropping the future loses nothing. Each record is appended together with its position. Never
    /// blocks the thread.
    fn poll(&mut self, out: &mut BatchBuilder) -> impl Future<Output = Result<Polled, SourceError>> + Send;

    /// Starts to read assigned splits from these positions, also splits that are read already: those go on from the
    /// new position, and nothing read before the call is appended after it.
    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError>;

    /// Stops to read splits. Nothing of them is appended after the call.
    ///
    /// Called for revoked splits before their last commit: a source that must tell somebody that a split is free does
    /// so at the next `poll`, not here.
    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError>;

    /// Lets splits rest without giving them up.
    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError>;

    /// Goes on with splits that rest, from their own positions.
    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError>;

    /// Asks the leaders of splits, freshly, where the splits end. Answers come as [`Polled::News`], each with its question.
    /// Returns at once. A source that cannot ask never answers, and its splits are never proven idle.
    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError> {
        let _ = questions;
        Ok(())
    }

    /// Releases everything. Called once, last, also after an error.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

trait ErasedSource: Send + fmt::Debug {
    fn open(&mut self, ctx: SourceContext) -> BoxFuture<'_, Result<(), SourceError>>;
    fn has_momentary_starts(&self) -> bool;
    fn poll<'a>(&'a mut self, out: &'a mut BatchBuilder) -> BoxFuture<'a, Result<Polled, SourceError>>;
    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError>;
    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError>;
    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError>;
    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError>;
    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError>;
    fn close(&mut self) -> BoxFuture<'_, ()>;
}

impl<S: Source> ErasedSource for S {
    fn open(&mut self, ctx: SourceContext) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(Source::open(self, ctx))
    }

    fn has_momentary_starts(&self) -> bool {
        Source::has_momentary_starts(self)
    }

    fn poll<'a>(&'a mut self, out: &'a mut BatchBuilder) -> BoxFuture<'a, Result<Polled, SourceError>> {
        Box::pin(Source::poll(self, out))
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        Source::add(self, splits)
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        Source::remove(self, splits)
    }

    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        Source::pause(self, splits)
    }

    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        Source::resume(self, splits)
    }

    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError> {
        Source::ask(self, questions)
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(Source::close(self))
    }
}

/// Any source, at the price of one dynamic call per batch.
#[derive(Debug)]
pub struct BoxSource(Box<dyn ErasedSource>);

impl BoxSource {
    /// Hides the type of `source`.
    pub fn new(source: impl Source + 'static) -> Self {
        Self(Box::new(source))
    }
}

impl Source for BoxSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        self.0.open(ctx).await
    }

    fn has_momentary_starts(&self) -> bool {
        self.0.has_momentary_starts()
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        self.0.poll(out).await
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        self.0.add(splits)
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.0.remove(splits)
    }

    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.0.pause(splits)
    }

    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.0.resume(splits)
    }

    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError> {
        self.0.ask(questions)
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}
