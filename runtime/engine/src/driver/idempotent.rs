//! Drives a sink that does not mind a repetition.

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, CheckpointId, State, Timestamp};

use super::SinkDriver;
use super::context::{DriverContext, Restored, Stage};
use super::error::DriverError;
use super::tally::DriverTally;
use crate::failpoint::fail_point;

/// Drives an [`IdempotentSink`]: everything taken over is durable before the barrier goes on. It stores nothing; after a
/// failure the source repeats, and the target converges.
#[derive(Debug)]
pub struct IdempotentDriver<S> {
    sink: S,
    stage: Stage,
    tally: DriverTally,
}

impl<S> IdempotentDriver<S> {
    /// Drives `sink`.
    pub fn new(sink: S) -> Self {
        Self { sink, stage: Stage::default(), tally: DriverTally::default() }
    }

    async fn flush<T>(&mut self) -> Result<(), DriverError>
    where
        S: IdempotentSink<T>,
    {
        fail_point!("idempotent::before_flush");
        self.sink.flush().await.map_err(DriverError::sink("flush"))?;
        fail_point!("idempotent::after_flush");
        self.tally.published = self.tally.written;
        Ok(())
    }
}

impl<T: Send, S: IdempotentSink<T>> SinkDriver<T> for IdempotentDriver<S> {
    async fn open(&mut self, ctx: DriverContext, _restored: Option<Restored>) -> Result<(), DriverError> {
        self.sink.open(ctx.sink.clone()).await.map_err(DriverError::sink("open"))?;
        self.stage.open(ctx);
        Ok(())
    }

    async fn write(&mut self, batch: Batch<T>, ctx: &WriteContext) -> Result<(), DriverError> {
        self.stage.writing()?;
        let records = batch.len() as u64;
        self.sink.upsert(batch, ctx).await.map_err(DriverError::sink("write"))?;
        self.tally.written += records;
        Ok(())
    }

    async fn barrier(
        &mut self,
        checkpoint: CheckpointId,
        _triggered_at: Timestamp,
    ) -> Result<State, DriverError> {
        self.stage.barrier(checkpoint)?;
        self.flush::<T>().await?;
        Ok(State::new())
    }

    async fn complete(&mut self, _checkpoint: CheckpointId) -> Result<(), DriverError> {
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        self.stage.finish();
        self.flush::<T>().await
    }

    async fn close(&mut self) {
        self.sink.close().await;
    }

    fn tally(&self) -> DriverTally {
        self.tally
    }
}
