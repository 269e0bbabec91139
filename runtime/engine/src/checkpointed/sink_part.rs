//! What a sink does once a job, before any of its subtasks opens.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levada_core::template::Fate;
use levada_core::{CheckpointId, SinkContext, State, StateError, Timestamp, WriteOrder};

use crate::driver::DriverError;
use crate::store::Store;

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction or a segment of a checkpoint, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

    /// How long the target keeps a transaction; known once it is open.
    fn transaction_timeout(&self) -> Option<Duration> {
        None
    }

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

    /// Ends whatever was begun for checkpoints below `first` and the states do not hold back.
    fn fence<'a>(
        &'a mut self,
        first: CheckpointId,
        states: &'a [State],
    ) -> BoxFuture<'a, Result<(), DriverError>>;

    /// Takes out of a state what is known to be visible: all that it holds back.
    fn settled(&self, state: &State) -> Result<State, StateError>;

    /// Whether its subtasks make visible what they hold back while they open.
    fn resolves_at_open(&self) -> bool;

    fn close(&mut self) -> BoxFuture<'_, ()>;
}

/// What order means to each sink, by name; asked at the start of a job that has an async step.
pub(super) type Writes = Vec<(String, Box<dyn Fn() -> WriteOrder + Send>)>;

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
