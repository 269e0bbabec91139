//! Sinks into Kafka that break their contract on purpose, so that a test can show that a crash loop finds it out.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, BoxError, CheckpointId, ErrorClass, SinkContext, SinkError};
use levada_kafka::protocol::{
    Ending, Identity, ProtocolClient, ProtocolConfig, TransactionAdmin as _, TransactionKey,
};
use levada_kafka::sink::producing::Serialise;
use levada_kafka::sink::recovery::TransactionHandle;
use levada_kafka::sink::two_phase::TransactionalSink;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tokio::task::block_in_place;

use super::key_and_number;

/// How long one step may take.
const WITHIN: Duration = Duration::from_secs(10);

fn failed<E: Into<BoxError>>(error: E) -> SinkError {
    SinkError::new(ErrorClass::Fatal, "the wrong sink").caused_by(error.into())
}

fn admin(brokers: &str) -> ProtocolClient {
    let config = ProtocolConfig::from_properties([("bootstrap.servers", brokers)]).expect("addresses");
    ProtocolClient::new(config).expect("a client")
}

fn key(handle: &TransactionHandle) -> TransactionKey<'_> {
    let TransactionHandle { transactional_id, producer_id, epoch, .. } = handle;
    TransactionKey { transactional_id, producer_id: *producer_id, epoch: *epoch }
}

/// Initialises its ids when it starts, as a client does that knows of no recovery: what waits under them is aborted.
pub(super) struct InitialisesFirst<S> {
    sink: TransactionalSink<String, S>,
    admin: ProtocolClient,
    begun: BTreeSet<String>,
}

impl<S> InitialisesFirst<S> {
    pub(super) fn new(sink: TransactionalSink<String, S>, brokers: &str) -> Self {
        Self { sink, admin: admin(brokers), begun: BTreeSet::new() }
    }
}

impl<S> fmt::Debug for InitialisesFirst<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitialisesFirst").finish_non_exhaustive()
    }
}

impl<S: Serialise<String>> TwoPhaseCommitSink<String> for InitialisesFirst<S> {
    type Handle = TransactionHandle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.sink.open(ctx).await
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<TransactionHandle, SinkError> {
        let handle = self.sink.begin(name).await?;
        self.begun.insert(handle.transactional_id.clone());
        Ok(handle)
    }

    async fn write(
        &mut self,
        handle: &mut TransactionHandle,
        batch: Batch<String>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.sink.write(handle, batch, ctx).await
    }

    async fn pre_commit(&mut self, handle: &mut TransactionHandle) -> Result<(), SinkError> {
        self.sink.pre_commit(handle).await
    }

    /// What it has not begun itself is no transaction of its client.
    async fn commit(&mut self, handle: &TransactionHandle) -> Result<(), SinkError> {
        match self.begun.contains(&handle.transactional_id) {
            true => self.sink.commit(handle).await,
            false => Ok(()),
        }
    }

    async fn abort(&mut self, handle: &TransactionHandle) -> Result<(), SinkError> {
        self.sink.abort(handle).await
    }

    /// The first that is called at a start.
    async fn inspect(&mut self, handles: &[TransactionHandle]) -> Result<Option<Vec<Fate>>, SinkError> {
        for handle in handles {
            self.admin.fence(&handle.transactional_id, handle.timeout, WITHIN).await.map_err(failed)?;
        }
        Ok(None)
    }

    async fn fence(&mut self, first: CheckpointId, kept: &[TransactionHandle]) -> Result<(), SinkError> {
        self.sink.fence(first, kept).await
    }

    async fn close(&mut self) {
        self.sink.close().await;
    }
}

/// Writes one transaction after the other with one producer, so that all of a life have one epoch, and commits by the
/// handle after a crash. What comes while one waits for its commit goes into the next, right behind the commit.
pub(super) struct OneEpoch {
    brokers: String,
    topic: String,
    admin: ProtocolClient,
    id: String,
    writing: Option<(BaseProducer, Identity)>,
    waits: bool,
    kept_back: Vec<String>,
}

impl fmt::Debug for OneEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneEpoch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl OneEpoch {
    pub(super) fn new(brokers: &str, topic: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            admin: admin(brokers),
            id: String::new(),
            writing: None,
            waits: false,
            kept_back: Vec::new(),
        }
    }

    async fn initialised(&mut self) -> Result<Identity, SinkError> {
        if let Some((_, identity)) = &self.writing {
            return Ok(*identity);
        }
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &self.brokers)
            .set("transactional.id", &self.id)
            .set("transaction.timeout.ms", "900000")
            .create()
            .map_err(failed)?;
        block_in_place(|| producer.init_transactions(WITHIN)).map_err(failed)?;
        let identity = self.described().await?.identity;
        producer.begin_transaction().map_err(failed)?;
        self.writing = Some((producer, identity));
        Ok(identity)
    }

    async fn described(&self) -> Result<levada_kafka::protocol::Described, SinkError> {
        let mut found = self.admin.describe(&[&self.id], WITHIN).await.map_err(failed)?;
        found.remove(&self.id).flatten().ok_or_else(|| failed("its coordinator does not know it"))
    }

    fn producer(&self) -> Result<&BaseProducer, SinkError> {
        self.writing.as_ref().map(|(producer, _)| producer).ok_or_else(|| failed("nothing is open"))
    }

    fn send(&self, line: &str) -> Result<(), SinkError> {
        let (key, _) = key_and_number(line).ok_or_else(|| failed("no number"))?;
        let record = BaseRecord::<str, str>::to(&self.topic).key(key).payload(line);
        self.producer()?.send(record).map_err(|(error, _)| failed(error))
    }

    fn flush(&self) -> Result<(), SinkError> {
        let producer = self.producer()?;
        block_in_place(|| producer.flush(WITHIN)).map_err(failed)
    }
}

impl TwoPhaseCommitSink<String> for OneEpoch {
    type Handle = TransactionHandle;

    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.id = format!("{}.{}.out.a1.s{}.t0", self.topic, ctx.job, ctx.subtask);
        Ok(())
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<TransactionHandle, SinkError> {
        let Identity { producer_id, epoch } = self.initialised().await?;
        Ok(TransactionHandle {
            transactional_id: self.id.clone(),
            producer_id,
            epoch,
            start: None,
            timeout: Duration::from_secs(900),
            checkpoint: name.checkpoint,
            attempt: name.checkpoint.attempt,
            subtask: name.subtask,
            partitions: Default::default(),
            records: 0,
            cluster_id: String::new(),
        })
    }

    async fn write(
        &mut self,
        _: &mut TransactionHandle,
        batch: Batch<String>,
        _: &WriteContext,
    ) -> Result<(), SinkError> {
        for record in batch.records() {
            match self.waits {
                true => self.kept_back.push(record.item.clone()),
                false => self.send(&record.item)?,
            }
        }
        Ok(())
    }

    async fn pre_commit(&mut self, handle: &mut TransactionHandle) -> Result<(), SinkError> {
        if self.waits {
            return Err(failed("two would wait"));
        }
        self.flush()?;
        handle.start = self.described().await?.start;
        self.waits = true;
        Ok(())
    }

    async fn commit(&mut self, handle: &TransactionHandle) -> Result<(), SinkError> {
        let ended = self.admin.end(key(handle), Ending::Commit, WITHIN).await;
        if self.writing.is_none() {
            // After a crash. What is refused was committed before.
            return Ok(());
        }
        ended.map_err(failed)?;
        block_in_place(|| self.producer()?.commit_transaction(WITHIN).map_err(failed))?;
        self.producer()?.begin_transaction().map_err(failed)?;
        self.waits = false;
        for line in std::mem::take(&mut self.kept_back) {
            self.send(&line)?;
        }
        self.flush()
    }

    async fn abort(&mut self, _: &TransactionHandle) -> Result<(), SinkError> {
        block_in_place(|| self.producer()?.abort_transaction(WITHIN).map_err(failed))
    }

    async fn close(&mut self) {
        self.writing = None;
    }
}
