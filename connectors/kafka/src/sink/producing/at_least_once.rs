//! The sink that writes at least once.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, ErrorClass, SinkContext, SinkError};

use super::config::{Guarantee, KafkaSinkConfig};
use super::error::{ProduceError, SinkConfigError};
use super::message::Outgoing;
use super::producer::Producer;
use super::serialise::{InBatch, Serialise};

/// How long the client may take to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Writes records to Kafka at least once: before a checkpoint that covers them, every one is acknowledged by all in-sync
/// replicas.
///
/// It takes the template of idempotent sinks for its calls, not for its promise: what is written again after a failure is
/// in the topic again. Readers that keep the last message of each key do not mind.
pub struct AtLeastOnceSink<T, S> {
    config: KafkaSinkConfig,
    serialise: S,
    outgoing: Outgoing,
    producer: Option<Producer>,
    /// The type of its records: without it, a call could be that of any.
    takes: PhantomData<fn(T)>,
}

impl<T, S> fmt::Debug for AtLeastOnceSink<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtLeastOnceSink")
            .field("config", &self.config)
            .field("producer", &self.producer)
            .finish_non_exhaustive()
    }
}

impl<T, S: Serialise<T>> AtLeastOnceSink<T, S> {
    /// Makes a sink whose records `serialise` turns into messages.
    ///
    /// # Errors
    /// The configuration cannot work, or asks for another guarantee.
    pub fn new(config: KafkaSinkConfig, serialise: S) -> Result<Self, SinkConfigError> {
        config.check()?;
        if config.guarantee != Guarantee::AtLeastOnce {
            return Err(SinkConfigError::Guarantee);
        }
        Ok(Self { config, serialise, outgoing: Outgoing::new(), producer: None, takes: PhantomData })
    }

    /// Returns its producer, once it is open.
    pub fn producer(&self) -> Option<&Producer> {
        self.producer.as_ref()
    }

    fn opened(&self) -> Result<&Producer, SinkError> {
        self.producer.as_ref().ok_or_else(|| SinkError::new(ErrorClass::Fatal, "the sink is not open"))
    }
}

impl<T: Send + Sync + 'static, S: Serialise<T>> IdempotentSink<T> for AtLeastOnceSink<T, S> {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        let name = format!("{}-{}", ctx.job, ctx.subtask);
        self.producer = Some(Producer::open(&self.config, &name).await?);
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<T>, _ctx: &WriteContext) -> Result<(), SinkError> {
        for record in batch.records() {
            let record = InBatch::new(&batch, record);
            self.outgoing.clear();
            if let Err(cause) = self.serialise.serialise(record, &mut self.outgoing) {
                let refused = "the serialiser refuses the record";
                return Err(SinkError::bad_record(record.coordinates(), refused).caused_by(cause));
            }
            let origin = record.coordinates();
            for message in self.outgoing.messages() {
                self.opened()?.send(&message, Some(&origin)).await?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        Ok(self.opened()?.flush().await?)
    }

    async fn close(&mut self) {
        let Some(producer) = self.producer.take() else { return };
        if let Err(error) = producer.close(CLOSE_WITHIN).await {
            tracing::warn!(%error, "the client is left to itself");
        }
    }
}

impl From<SinkConfigError> for SinkError {
    fn from(error: SinkConfigError) -> Self {
        ProduceError::Config(error).into()
    }
}
