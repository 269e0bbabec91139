//! What a sink does once a job, before any of its subtasks opens.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use levada_core::template::{CheckpointCommitter, Fate, TwoPhaseCommitSink, WriteAheadSink};
use levada_core::{CheckpointId, SinkContext, State, StateError, Timestamp};

use super::pieces::PieceHome;
use crate::driver::{
    DriverError, JobRecovery, StoredTransaction, TwoPhaseOptions, age, stored_segments, without_pending,
};
use crate::store::Store;

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction or a segment of a checkpoint, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTransaction {
    /// Its name, as its handle or its marker prints.
    pub name: String,
    /// The checkpoint that covers it.
    pub checkpoint: CheckpointId,
    /// How many records are in it.
    pub records: u64,
    /// What became of it.
    pub fate: Fate,
    /// Whether the sink's policy is to go on without it if it is gone.
    pub(super) is_loss_tolerated: bool,
}

/// What the builder leaves for the starts of a job: one for each sink that has something to resolve.
pub(crate) trait SinkPart: Send {
    /// Tells where long segments are kept while they grow.
    fn bind(&self, _store: &Store, _piece_bytes: usize) {}

    /// Makes the sink of one start.
    fn resolver(&self) -> Box<dyn SinkResolver>;
}

/// A sink that was made for a start, to look after what earlier attempts have left.
pub(crate) trait SinkResolver: Send {
    fn uid(&self) -> &str;

    fn open(&mut self, ctx: SinkContext) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Asks what became of everything that the states of all subtasks hold back.
    fn inspect<'a>(
        &'a mut self,
        states: &'a [State],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>>;

    /// Drops what the states hold back above `to`, except what is visible: that it returns.
    fn roll_back<'a>(
        &'a mut self,
        states: &'a [State],
        to: Option<CheckpointId>,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>>;

    /// Ends whatever the states do not hold back.
    fn fence<'a>(&'a mut self, states: &'a [State]) -> BoxFuture<'a, Result<(), DriverError>>;

    /// Takes out of a state what is known to be visible: all that it holds back.
    fn settled(&self, state: &State) -> Result<State, StateError>;

    /// Whether its subtasks make visible what they hold back while they open.
    fn resolves_at_open(&self) -> bool;

    fn close(&mut self) -> BoxFuture<'_, ()>;
}

/// A user's function that makes sinks, for the tasks and for the starts.
pub(crate) struct Shared<F>(Arc<Mutex<F>>);

impl<F> Shared<F> {
    pub(crate) fn new(make: F) -> Self {
        Self(Arc::new(Mutex::new(make)))
    }

    pub(crate) fn make<K>(&self, subtask: u32) -> K
    where
        F: Fn(u32) -> K,
    {
        // Starts and tasks do not make sinks at once; the lock is there because the function need not be `Sync`.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)(subtask)
    }
}

impl<F> Clone for Shared<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The part of a two-phase sink.
pub(crate) struct TwoPhasePart<T, F> {
    uid: String,
    options: TwoPhaseOptions,
    make: Shared<F>,
    records: PhantomData<fn(T)>,
}

impl<T, F> TwoPhasePart<T, F> {
    pub(crate) fn new(uid: String, options: TwoPhaseOptions, make: Shared<F>) -> Self {
        Self { uid, options, make, records: PhantomData }
    }
}

impl<T, K, F> SinkPart for TwoPhasePart<T, F>
where
    T: Send + 'static,
    K: TwoPhaseCommitSink<T> + 'static,
    F: Fn(u32) -> K + Send + 'static,
{
    fn resolver(&self) -> Box<dyn SinkResolver> {
        let (sink, records) = (self.make.make(0), PhantomData);
        Box::new(TwoPhaseResolver { uid: self.uid.clone(), options: self.options, sink, records })
    }
}

struct TwoPhaseResolver<T, K> {
    uid: String,
    options: TwoPhaseOptions,
    sink: K,
    records: PhantomData<fn(T)>,
}

fn found<H: fmt::Debug>(transaction: &StoredTransaction<H>, fate: Fate) -> FoundTransaction {
    let StoredTransaction { handle, checkpoint, records, .. } = transaction;
    let name = format!("{handle:?}");
    FoundTransaction { name, checkpoint: *checkpoint, records: *records, fate, is_loss_tolerated: false }
}

impl<T: Send + 'static, K: TwoPhaseCommitSink<T>> SinkResolver for TwoPhaseResolver<T, K> {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn open(&mut self, ctx: SinkContext) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move { self.sink.open(ctx).await.map_err(DriverError::sink("open")) })
    }

    fn inspect<'a>(
        &'a mut self,
        states: &'a [State],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>> {
        Box::pin(async move {
            let recovery = JobRecovery::<K::Handle>::read(states)?;
            let fates = recovery.fates(&mut self.sink).await?;
            let timeout = self.sink.transaction_timeout();
            let all = recovery.transactions().iter().zip(fates).map(|(transaction, fate)| {
                let age = age(transaction.begun_at, now);
                let is_loss_tolerated = self.options.on_loss.tolerates_restored(age, timeout);
                FoundTransaction { is_loss_tolerated, ..found(transaction, fate) }
            });
            Ok(all.collect())
        })
    }

    fn roll_back<'a>(
        &'a mut self,
        states: &'a [State],
        to: Option<CheckpointId>,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>> {
        Box::pin(async move {
            let recovery = JobRecovery::<K::Handle>::read(states)?;
            let fates = recovery.fates(&mut self.sink).await?;
            let mut visible = Vec::new();
            for (transaction, fate) in recovery.transactions().iter().zip(fates) {
                if Some(transaction.checkpoint) <= to {
                    continue;
                }
                if fate == Fate::Committed {
                    visible.push(found(transaction, fate));
                    continue;
                }
                let aborted = self.sink.abort(&transaction.handle).await;
                aborted.map_err(DriverError::sink("abort a transaction"))?;
            }
            Ok(visible)
        })
    }

    fn fence<'a>(&'a mut self, states: &'a [State]) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(async move {
            let recovery = JobRecovery::<K::Handle>::read(states)?;
            let newest = recovery.transactions().iter().map(|transaction| transaction.checkpoint).max();
            recovery.fence(&mut self.sink, newest).await
        })
    }

    fn settled(&self, state: &State) -> Result<State, StateError> {
        without_pending::<K::Handle>(state)
    }

    fn resolves_at_open(&self) -> bool {
        true
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.sink.close())
    }
}

/// The part of a write-ahead sink: its markers tell what was sent, and a roll-back must not read that again.
pub(crate) struct WriteAheadPart<T, F> {
    uid: String,
    make: Shared<F>,
    pieces: PieceHome,
    records: PhantomData<fn(T)>,
}

impl<T, F> WriteAheadPart<T, F> {
    pub(crate) fn new(uid: String, make: Shared<F>, pieces: PieceHome) -> Self {
        Self { uid, make, pieces, records: PhantomData }
    }
}

impl<T, K, C, F> SinkPart for WriteAheadPart<T, F>
where
    T: Send + 'static,
    K: WriteAheadSink<T> + 'static,
    C: CheckpointCommitter + 'static,
    F: Fn(u32) -> (K, C) + Send + 'static,
{
    fn bind(&self, store: &Store, piece_bytes: usize) {
        self.pieces.bind(store, piece_bytes);
    }

    fn resolver(&self) -> Box<dyn SinkResolver> {
        let (_, committer) = self.make.make(0);
        Box::new(WriteAheadResolver { uid: self.uid.clone(), committer })
    }
}

struct WriteAheadResolver<C> {
    uid: String,
    committer: C,
}

impl<C: CheckpointCommitter> WriteAheadResolver<C> {
    async fn find(&mut self, states: &[State]) -> Result<Vec<FoundTransaction>, DriverError> {
        let mut all = Vec::new();
        for state in states {
            for (marker, records) in stored_segments(state)? {
                let asked = self.committer.is_committed(&marker).await;
                let is_sent = asked.map_err(DriverError::committer("tell what was sent"))?;
                let fate = if is_sent { Fate::Committed } else { Fate::Pending };
                let (name, checkpoint) = (marker.to_string(), marker.checkpoint);
                all.push(FoundTransaction { name, checkpoint, records, fate, is_loss_tolerated: false });
            }
        }
        Ok(all)
    }
}

impl<C: CheckpointCommitter> SinkResolver for WriteAheadResolver<C> {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn open(&mut self, ctx: SinkContext) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move { self.committer.open(&ctx).await.map_err(DriverError::committer("open")) })
    }

    fn inspect<'a>(
        &'a mut self,
        states: &'a [State],
        _now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>> {
        Box::pin(self.find(states))
    }

    fn roll_back<'a>(
        &'a mut self,
        states: &'a [State],
        to: Option<CheckpointId>,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>> {
        // A segment that was not sent goes with the state that holds it.
        Box::pin(async move {
            let mut sent = self.find(states).await?;
            sent.retain(|segment| segment.fate == Fate::Committed && Some(segment.checkpoint) > to);
            Ok(sent)
        })
    }

    fn fence<'a>(&'a mut self, _states: &'a [State]) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(async { Ok(()) })
    }

    /// A complete checkpoint does not mean that its segments were taken: the markers tell.
    fn settled(&self, state: &State) -> Result<State, StateError> {
        Ok(state.clone())
    }

    fn resolves_at_open(&self) -> bool {
        false
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
