//! The writer: what it is made of, and writing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{Clock, SystemClock};

use super::error::WriterError;
use super::misuse::Misuse;
use super::running::{Open, Running};
use crate::sink::producing::{Guarantee, KafkaSinkConfig, Message};
use crate::sink::recovery::{TornPolicy, TransactionHandle, TransactionNaming};

/// Writes transactions that are committed in two phases, also by another process than the one that wrote them.
///
/// Needs a tokio runtime around it. Dropped, it leaves what is prepared to whoever has the handle, and what is open to the next
/// [`resolve`](Self::resolve), or to the transaction timeout.
pub struct TransactionalWriter {
    pub(super) config: KafkaSinkConfig,
    pub(super) naming: TransactionNaming,
    pub(super) attempt: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) margin: Duration,
    pub(super) torn: TornPolicy,
    /// Between `resolve` and the end.
    pub(super) running: Option<Running>,
}

impl fmt::Debug for TransactionalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalWriter")
            .field("config", &self.config)
            .field("naming", &self.naming)
            .field("attempt", &self.attempt)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl TransactionalWriter {
    /// Makes a writer; connects to nobody. Its transactional ids are `<prefix>.<name>.writer.a<attempt>.s0.t<slot>`: `prefix` is
    /// what rights are granted by, `name` tells writers apart, and `attempt` is a number above that of every run before under
    /// this name. At any time one process writes under a name.
    ///
    /// Of the configuration, the transaction timeout bounds how long after its first record a transaction can be committed.
    ///
    /// # Errors
    /// The configuration cannot work, or prefix and name make no ids.
    pub fn new(config: KafkaSinkConfig, prefix: &str, name: &str, attempt: u64) -> Result<Self, WriterError> {
        let config = config.guarantee(Guarantee::ExactlyOnceByCheckpoint);
        config.check()?;
        Ok(Self {
            config,
            naming: TransactionNaming::new(prefix, name, "writer")?,
            attempt,
            clock: Arc::new(SystemClock),
            margin: Duration::from_secs(10),
            torn: TornPolicy::default(),
            running: None,
        })
    }

    /// Sets the clock by which the time is told that a transaction has left.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how much of its timeout must be left to a transaction that is prepared, or committed by
    /// [`resolve`](Self::resolve); default 10 s. It has to cover all commits of a start, and what our clock and the brokers'
    /// differ by.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Sets how [`resolve`](Self::resolve) goes on where some transactions are visible and others gone; by default it does not.
    #[must_use]
    pub fn when_torn(mut self, policy: TornPolicy) -> Self {
        self.torn = policy;
        self
    }

    /// Begins a transaction. There is a producer ready for it, unless transactions are begun faster than producers are made
    /// ready, which takes some 60 ms on one broker.
    ///
    /// # Errors
    /// [`Misuse`] before `resolve`, or while a transaction is open. A producer could not be made ready; the next call tries again.
    ///
    /// # Cancel safety
    /// A call that is dropped has begun nothing.
    pub async fn begin(&mut self) -> Result<(), WriterError> {
        let running = self.running.as_mut().ok_or(Misuse::NotResolved)?;
        running.begin().await
    }

    /// Writes a message into the open transaction, when there is room for it. Several tasks may do so at once; the order within
    /// a partition is that of the calls.
    ///
    /// # Errors
    /// [`Misuse`] without an open transaction: before `begin`, and behind `prepare`. This message cannot be sent, or an earlier
    /// one was not delivered: the transaction lacks it, and only [`discard`](Self::discard) is left.
    ///
    /// # Cancel safety
    /// A call that is dropped has sent nothing.
    pub async fn send(&self, message: &Message<'_>) -> Result<(), WriterError> {
        let running = self.running.as_ref().ok_or(Misuse::NotResolved)?;
        match &running.open {
            Open::Slot(slot) => Ok(slot.send(message, None).await?),
            other => Err(other.refuse("send").into()),
        }
    }

    /// Ends the writing: waits until every message is acknowledged by all in-sync replicas, and sees to it that the transaction
    /// waits at its coordinator with all its partitions and enough time left. The handle is all that is needed to commit it, in
    /// any process. `None` if nothing was sent: there is no transaction then, and nothing to commit.
    ///
    /// # Errors
    /// [`Misuse`] without an open transaction. A message was not delivered, or the transaction does not wait as it should: only
    /// [`discard`](Self::discard) is left.
    ///
    /// # Cancel safety
    /// Not cancel safe: behind a drop, only [`discard`](Self::discard) is left.
    pub async fn prepare(&mut self) -> Result<Option<TransactionHandle>, WriterError> {
        let running = self.running.as_mut().ok_or(Misuse::NotResolved)?;
        running.prepare().await
    }

    /// Aborts the open transaction, whatever became of it: none of its messages is ever visible.
    ///
    /// # Errors
    /// [`Misuse`] without an open transaction. The coordinator cannot be reached: the same call goes on.
    ///
    /// # Cancel safety
    /// Behind a drop, the same call goes on.
    pub async fn discard(&mut self) -> Result<(), WriterError> {
        let running = self.running.as_mut().ok_or(Misuse::NotResolved)?;
        running.discard().await
    }

    /// Commits a transaction that this writer has prepared, and waits until readers of committed data see its messages. Only once
    /// its handle is noted, which may be struck out behind this call.
    ///
    /// # Errors
    /// [`Misuse`] for a handle that does not wait here, or while an older one does.
    /// [`ResolveError::Unseen`](crate::sink::two_phase::ResolveError::Unseen) and
    /// [`Unchecked`](crate::sink::two_phase::ResolveError::Unchecked) where it is committed, and readers may not see it: the same
    /// call again, when the right is granted or the broker is back.
    /// [`ResolveError::Lost`](crate::sink::two_phase::ResolveError::Lost) names partitions and records of one that is gone: abort
    /// it, and those behind it, and write their messages again. Others may pass by themselves
    /// ([`is_retriable`](WriterError::is_retriable)): the same call again.
    ///
    /// # Cancel safety
    /// Behind a drop it may be committed or not; the same call finds out.
    pub async fn commit(&mut self, handle: &TransactionHandle) -> Result<(), WriterError> {
        let running = self.running.as_mut().ok_or(Misuse::NotResolved)?;
        running.commit(handle).await
    }

    /// Aborts a transaction that this writer has prepared. Succeeds if it is gone already.
    ///
    /// # Errors
    /// [`Misuse`] for a handle that does not wait here, or while a newer one does. It is committed already, by somebody else; or
    /// the coordinator cannot be reached: the same call again.
    ///
    /// # Cancel safety
    /// Behind a drop it may be aborted or not; the same call finds out.
    pub async fn abort(&mut self, handle: &TransactionHandle) -> Result<(), WriterError> {
        let running = self.running.as_mut().ok_or(Misuse::NotResolved)?;
        running.abort(handle).await
    }

    /// Walks through the transactions that are prepared and not decided, oldest first.
    pub fn prepared(&self) -> impl Iterator<Item = &TransactionHandle> {
        self.running.iter().flat_map(|running| running.handles())
    }
}
