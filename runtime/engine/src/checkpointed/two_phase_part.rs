//! What a two-phase sink does once a job: it tells what became of its transactions, drops some, and fences.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use levada_core::template::{Fate, TwoPhaseCommitSink};
use levada_core::{CheckpointId, SinkContext, State, StateError, Timestamp};

use super::gather::Writers;
use super::sink_part::{BoxFuture, FoundTransaction, Shared, SinkPart, SinkResolver};
use crate::driver::{DriverError, JobRecovery, StoredTransaction, TwoPhaseOptions, without_pending};

/// The part of a two-phase sink.
pub(crate) struct TwoPhasePart<T, F> {
    uid: String,
    options: TwoPhaseOptions,
    make: Shared<F>,
    writers: Writers,
    records: PhantomData<fn(T)>,
}

impl<T, F> TwoPhasePart<T, F> {
    pub(super) fn new(uid: String, options: TwoPhaseOptions, make: Shared<F>, writers: Writers) -> Self {
        Self { uid, options, make, writers, records: PhantomData }
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
        // Before the tasks of this start are wired.
        self.writers.set(sink.writers());
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

    fn transaction_timeout(&self) -> Option<Duration> {
        self.sink.transaction_timeout()
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
                let age = now.since(transaction.begun_at);
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

    fn fence<'a>(
        &'a mut self,
        first: CheckpointId,
        states: &'a [State],
    ) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(async move {
            let recovery = JobRecovery::<K::Handle>::read(states)?;
            let newest = recovery.transactions().iter().map(|transaction| transaction.checkpoint).max();
            recovery.fence(&mut self.sink, first, newest).await
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
