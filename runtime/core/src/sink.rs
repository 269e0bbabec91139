//! The contract of a sink.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::batch::Batch;
use crate::error::SinkError;
use crate::source::Assignment;
use crate::split::{Positions, SplitId};

/// What a sink is told when it is opened.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The job's name. Stored positions belong to it.
    pub job: String,
    /// The number of this subtask, from zero.
    pub subtask: u32,
    /// How many subtasks write together.
    pub parallelism: u32,
}

/// What the order of records means to a sink's target. Whatever lets records overtake each other has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WriteOrder {
    /// The last record of a key stays, and the sink finds the key in what the record has become: an upsert, an update, a
    /// delete, a topic with keys. What a sink is taken for that says nothing else.
    #[default]
    ByOwnKey,
    /// The last record of a key stays, and the key is that of the record as it was read.
    ByRecordKey,
    /// Every record stays, or a version guard decides which one of a key does: order means nothing.
    Any,
}

/// What every sink can do.
pub trait Sink<T>: Send + fmt::Debug {
    /// Connects and checks the target. Called once, before anything else.
    fn open(&mut self, ctx: SinkContext) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Takes records over. What was written becomes visible by the template's own verb, not before.
    fn write(&mut self, batch: Batch<T>) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Releases everything, without making anything visible. Called once, last, also after an error.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// A sink whose target stores source positions together with the data: exactly once without a checkpoint store.
///
/// *Fence before reading*: [`AtomicSink::claim`] first makes every earlier owner's commit impossible, then reads.
pub trait AtomicSink<T>: Sink<T> {
    /// Takes splits over and returns where each goes on.
    ///
    /// Splits that this sink holds already are claimed only if nobody took them meanwhile; others are taken from
    /// whoever holds them. The first claim of a stream stores the start of all its splits in one step.
    ///
    /// # Errors
    /// [`ErrorClass::Fenced`](crate::ErrorClass::Fenced) when a split that this sink held belongs to somebody else.
    fn claim(&mut self, assignment: &Assignment)
    -> impl Future<Output = Result<Positions, SinkError>> + Send;

    /// Makes everything written since the last commit visible, and the positions with it: all or nothing.
    ///
    /// Waits while the target is away. Not cancel safe: a dropped future leaves the outcome unknown until the next
    /// claim.
    ///
    /// # Errors
    /// [`ErrorClass::Fenced`](crate::ErrorClass::Fenced) when another owner has claimed one of the splits. Nothing of the
    /// interval is visible then; the sink stays usable: `discard`, `release` of the lost splits and a new `claim` may
    /// follow.
    fn commit(&mut self, positions: &Positions) -> impl Future<Output = Result<Committed, SinkError>> + Send;

    /// Drops everything written since the last commit.
    fn discard(&mut self);

    /// Gives splits up; a later claim takes them as anybody else's.
    fn release(&mut self, splits: &[SplitId]);

    /// Tells how much was written since the last commit.
    fn pending(&self) -> Pending;

    /// Tells what the order of records means to its target. Asked before it is opened, maybe of a sink that never is.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::ByOwnKey
    }
}

/// How much waits for the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending {
    /// Changes.
    pub rows: u64,
    /// Bytes, as the sink holds them.
    pub bytes: u64,
}

/// What a commit did: the sink's terms of the balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Committed {
    /// Rows sent to be inserted or updated.
    pub written: u64,
    /// Changes that a later change of the same key in the same interval replaced.
    pub coalesced: u64,
    /// Keys sent to be deleted.
    pub deleted: u64,
    /// Tombstones passed over by policy.
    pub ignored: u64,
    /// Changes that a version guard held back.
    pub guarded: u64,
}

impl Committed {
    /// Adds another commit's counts.
    pub fn add(&mut self, other: Committed) {
        self.written += other.written;
        self.coalesced += other.coalesced;
        self.deleted += other.deleted;
        self.ignored += other.ignored;
        self.guarded += other.guarded;
    }

    /// Returns the number of changes accounted for.
    pub fn total(&self) -> u64 {
        self.written + self.coalesced + self.deleted + self.ignored + self.guarded
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

trait ErasedAtomicSink<T: 'static>: Send + fmt::Debug {
    fn open(&mut self, ctx: SinkContext) -> BoxFuture<'_, Result<(), SinkError>>;
    fn write(&mut self, batch: Batch<T>) -> BoxFuture<'_, Result<(), SinkError>>;
    fn close(&mut self) -> BoxFuture<'_, ()>;
    fn claim<'a>(&'a mut self, assignment: &'a Assignment) -> BoxFuture<'a, Result<Positions, SinkError>>;
    fn commit<'a>(&'a mut self, positions: &'a Positions) -> BoxFuture<'a, Result<Committed, SinkError>>;
    fn discard(&mut self);
    fn release(&mut self, splits: &[SplitId]);
    fn pending(&self) -> Pending;
    fn write_order(&self) -> WriteOrder;
}

impl<T: Send + 'static, S: AtomicSink<T>> ErasedAtomicSink<T> for S {
    fn open(&mut self, ctx: SinkContext) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(Sink::open(self, ctx))
    }

    fn write(&mut self, batch: Batch<T>) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(Sink::write(self, batch))
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(Sink::close(self))
    }

    fn claim<'a>(&'a mut self, assignment: &'a Assignment) -> BoxFuture<'a, Result<Positions, SinkError>> {
        Box::pin(AtomicSink::claim(self, assignment))
    }

    fn commit<'a>(&'a mut self, positions: &'a Positions) -> BoxFuture<'a, Result<Committed, SinkError>> {
        Box::pin(AtomicSink::commit(self, positions))
    }

    fn discard(&mut self) {
        AtomicSink::discard(self);
    }

    fn release(&mut self, splits: &[SplitId]) {
        AtomicSink::release(self, splits);
    }

    fn pending(&self) -> Pending {
        AtomicSink::pending(self)
    }

    fn write_order(&self) -> WriteOrder {
        AtomicSink::write_order(self)
    }
}

/// Any atomic sink, at the price of one dynamic call per batch.
pub struct BoxAtomicSink<T: 'static>(Box<dyn ErasedAtomicSink<T>>);

impl<T: 'static> fmt::Debug for BoxAtomicSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Send + 'static> BoxAtomicSink<T> {
    /// Hides the type of `sink`.
    pub fn new(sink: impl AtomicSink<T> + 'static) -> Self {
        Self(Box::new(sink))
    }
}

impl<T: Send + 'static> Sink<T> for BoxAtomicSink<T> {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.0.open(ctx).await
    }

    async fn write(&mut self, batch: Batch<T>) -> Result<(), SinkError> {
        self.0.write(batch).await
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

impl<T: Send + 'static> AtomicSink<T> for BoxAtomicSink<T> {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        self.0.claim(assignment).await
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        self.0.commit(positions).await
    }

    fn discard(&mut self) {
        self.0.discard();
    }

    fn release(&mut self, splits: &[SplitId]) {
        self.0.release(splits);
    }

    fn pending(&self) -> Pending {
        self.0.pending()
    }

    fn write_order(&self) -> WriteOrder {
        self.0.write_order()
    }
}
