//! Transactions of the transactional sink that wait for their commit, for the tests of what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use levada_core::template::{TransactionName, TwoPhaseCommitSink as _};
use levada_core::{CheckpointId, SystemClock};
use levada_kafka::protocol::{ProtocolClient, ProtocolConfig};
use levada_kafka::sink::producing::{AsRead, KafkaSinkConfig, TransactionTimeout};
use levada_kafka::sink::recovery::{TransactionHandle, TransactionNaming};
use levada_kafka::sink::two_phase::{Resolver, TransactionalSink};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::support::{PATIENCE, Topic, batch, context, now};

/// The sink of one attempt, whose transactional ids begin with the topic's name.
pub(crate) struct Attempt {
    sink: TransactionalSink<(), AsRead>,
    attempt: u64,
    sequence: u64,
}

impl Attempt {
    pub(crate) async fn open(topic: &Topic, attempt: u64) -> Attempt {
        // So that none is left on the shared broker for long.
        let timeout = TransactionTimeout::After(Duration::from_secs(300));
        let config =
            KafkaSinkConfig::new(&topic.bootstrap).topics([&topic.name]).transaction_timeout(timeout);
        let sink = TransactionalSink::new(config, &topic.name, "out", AsRead::to(&topic.name));
        let mut sink = sink.expect("a configuration that works");
        sink.open(context()).await.expect("open");
        Attempt { sink, attempt, sequence: 0 }
    }

    /// Writes a value into a transaction, and leaves it open.
    pub(crate) async fn begin(&mut self, value: &str) -> TransactionHandle {
        self.sequence += 1;
        let checkpoint = CheckpointId::new(self.attempt, self.sequence);
        let name = TransactionName { subtask: 0, checkpoint };
        let mut handle = self.sink.begin(&name).await.expect("begin");
        self.sink.write(&mut handle, batch(0, [value.as_bytes()]), &now()).await.expect("write");
        handle
    }

    /// Writes a value into a transaction, and pre-commits it.
    pub(crate) async fn prepare(&mut self, value: &str) -> TransactionHandle {
        let mut handle = self.begin(value).await;
        self.sink.pre_commit(&mut handle).await.expect("pre-commit");
        handle
    }

    /// Pre-commits a transaction into which nothing was written.
    pub(crate) async fn prepare_nothing(&mut self) -> TransactionHandle {
        self.sequence += 1;
        let checkpoint = CheckpointId::new(self.attempt, self.sequence);
        let mut handle = self.sink.begin(&TransactionName { subtask: 0, checkpoint }).await.expect("begin");
        self.sink.pre_commit(&mut handle).await.expect("pre-commit");
        assert_eq!(handle.records, 0);
        handle
    }

    pub(crate) async fn abort(&mut self, handle: &TransactionHandle) {
        self.sink.abort(handle).await.expect("abort");
    }

    pub(crate) async fn commit(&mut self, handle: &TransactionHandle) {
        self.sink.commit(handle).await.expect("commit");
    }

    /// Commits one transaction after the other, until one has the id that `first` had.
    pub(crate) async fn prepare_under_the_id_of(&mut self, first: &TransactionHandle) -> TransactionHandle {
        loop {
            let next = self.prepare("later").await;
            if next.transactional_id == first.transactional_id {
                return next;
            }
            self.commit(&next).await;
        }
    }

    /// What a start does before it opens any subtask.
    pub(crate) async fn fence(&mut self, kept: &[TransactionHandle]) {
        self.sink.fence(CheckpointId::new(self.attempt, 1), kept).await.expect("fence");
    }
}

fn client(bootstrap: &str) -> ProtocolClient {
    let config = ProtocolConfig::from_properties([("bootstrap.servers", bootstrap)]).expect("an address");
    ProtocolClient::new(config).expect("a client")
}

/// Returns the id of a topic's cluster.
pub(crate) async fn cluster_id(topic: &Topic) -> String {
    client(&topic.bootstrap).cluster(&[], PATIENCE).await.expect("an answer").id
}

/// Resolves the transactions of a topic's sink, by a connection of its own to `bootstrap`.
pub(crate) fn resolver(topic: &Topic, bootstrap: &str) -> Resolver {
    resolver_with(topic, vec![("bootstrap.servers".to_owned(), bootstrap.to_owned())])
}

/// The same with all properties of its connections.
pub(crate) fn resolver_with(topic: &Topic, properties: Vec<(String, String)>) -> Resolver {
    let config = ProtocolConfig::from_properties(properties).expect("properties");
    let admin = ProtocolClient::new(config).expect("a client");
    let naming = TransactionNaming::new(&topic.name, &context().job, "out").expect("names");
    Resolver::new(admin, naming, Arc::new(SystemClock), Duration::from_secs(10))
}

/// Leaves a transaction open under an id, as a process does that is killed: the producer is gone, the transaction is not.
pub(crate) fn leave_open(topic: &Topic, id: &str) {
    drop(open_under(topic, id, "left"));
}

/// Initialises an id and opens a transaction under it, with one value.
pub(crate) fn open_under(topic: &Topic, id: &str, value: &str) -> BaseProducer {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &topic.bootstrap)
        .set("transactional.id", id)
        .set("transaction.timeout.ms", "300000")
        .create()
        .expect("a producer");
    producer.init_transactions(PATIENCE).expect("init");
    begin_with(&producer, topic, value);
    producer
}

/// Begins a transaction with one value.
pub(crate) fn begin_with(producer: &BaseProducer, topic: &Topic, value: &str) {
    producer.begin_transaction().expect("begin");
    let record = BaseRecord::<str, str>::to(&topic.name).payload(value);
    producer.send(record).map_err(|(error, _)| error).expect("send");
    producer.flush(PATIENCE).expect("flush");
}
