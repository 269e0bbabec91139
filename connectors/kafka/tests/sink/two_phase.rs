//! The sink of transactions, driven by hand.

use std::sync::Arc;
use std::time::Duration;

use levada_core::template::{TransactionName, TwoPhaseCommitSink};
use levada_core::{CheckpointId, SinkError};
use levada_kafka::sink::metrics::SinkMetrics;
use levada_kafka::sink::producing::{AsRead, KafkaSinkConfig};
use levada_kafka::sink::recovery::TransactionHandle;
use levada_kafka::sink::slot::SlotState;
use levada_kafka::sink::two_phase::TransactionalSink;

use super::coordinator::Coordinator;
use super::support::{PATIENCE, Topic, batch, context, now};

/// A sink with what a test looks at.
pub(crate) struct Driven {
    pub(crate) sink: TransactionalSink<(), AsRead>,
    pub(crate) metrics: SinkMetrics,
    pub(crate) coordinator: Arc<Coordinator>,
}

pub(crate) fn name(sequence: u64) -> TransactionName {
    TransactionName { subtask: 0, checkpoint: CheckpointId { attempt: 7, sequence } }
}

impl Driven {
    /// Makes a sink whose ids begin with the topic's name.
    pub(crate) fn new(topic: &Topic, config: KafkaSinkConfig) -> Driven {
        let metrics = SinkMetrics::new();
        let sink = TransactionalSink::new(config, &topic.name, "out", AsRead::to(&topic.name));
        let sink = sink.expect("it works").metrics(metrics.clone());
        Driven { sink, metrics, coordinator: Coordinator::at(&topic.bootstrap) }
    }

    /// The same, open, and told what its first transaction is named.
    pub(crate) async fn open(topic: &Topic, config: KafkaSinkConfig) -> Driven {
        Driven::new(topic, config).opened().await
    }

    /// The same, whose commits may take so long.
    pub(crate) async fn resolving_within(topic: &Topic, config: KafkaSinkConfig, within: Duration) -> Driven {
        let driven = Driven::new(topic, config);
        Driven { sink: driven.sink.resolve_within(within), ..driven }.opened().await
    }

    async fn opened(self) -> Driven {
        let mut driven = self;
        driven.sink.open(context()).await.expect("open");
        driven.sink.will_begin(&name(1));
        driven
    }

    /// Waits until so many of its producers are ready.
    pub(crate) async fn until_warm(&self, count: usize) {
        let mut slots = self.sink.slots().expect("told what will begin");
        let enough =
            slots.wait_for(|all| all.values().filter(|one| one.state == SlotState::Warm).count() == count);
        tokio::time::timeout(PATIENCE, enough).await.expect("in time").expect("the slots are there");
    }

    /// Begins a transaction and writes records into it.
    pub(crate) async fn write(
        &mut self,
        sequence: u64,
        values: &[&str],
    ) -> Result<TransactionHandle, SinkError> {
        self.write_as(&name(sequence), values).await
    }

    async fn write_as(
        &mut self,
        name: &TransactionName,
        values: &[&str],
    ) -> Result<TransactionHandle, SinkError> {
        let mut handle = self.sink.begin(name).await?;
        let sequence = name.checkpoint.sequence;
        let values = values.iter().map(|value| value.as_bytes());
        self.sink.write(&mut handle, batch(sequence * 100, values), &now()).await?;
        Ok(handle)
    }

    /// The same, and pre-commits it.
    pub(crate) async fn prepare(
        &mut self,
        sequence: u64,
        values: &[&str],
    ) -> Result<TransactionHandle, SinkError> {
        let mut handle = self.write(sequence, values).await?;
        self.sink.pre_commit(&mut handle).await?;
        Ok(handle)
    }

    /// The same in another attempt.
    pub(crate) async fn prepare_in(
        &mut self,
        attempt: u64,
        sequence: u64,
        values: &[&str],
    ) -> Result<TransactionHandle, SinkError> {
        let name = TransactionName { checkpoint: CheckpointId { attempt, sequence }, ..name(sequence) };
        let mut handle = self.write_as(&name, values).await?;
        self.sink.pre_commit(&mut handle).await?;
        Ok(handle)
    }

    /// Commits it, and waits until readers see it.
    pub(crate) async fn commit_visibly(&mut self, handle: &TransactionHandle) {
        self.sink.commit(handle).await.expect("commit");
        self.coordinator.until(&handle.transactional_id, "CompleteCommit").await;
    }
}

/// How long brokers let the transactions of these tests stay open.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15 * 60);
