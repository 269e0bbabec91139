//! The transactional sink keeps the promises of its template, on a real broker.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_conformance::{Histories, TwoPhaseTarget};
use levada_core::BoxError;
use levada_kafka::protocol::{
    Ending, Listed, ProtocolClient, ProtocolConfig, State, TransactionAdmin as _, TransactionKey,
};
use levada_kafka::sink::producing::{InBatch, KafkaSinkConfig, Message, Outgoing};
use levada_kafka::sink::recovery::TransactionHandle;
use levada_kafka::sink::two_phase::TransactionalSink;
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(60);
/// Each subtask writes to its own: readers see a partition up to its first open transaction, and what one subtask has committed would
/// not show behind what another one holds back.
const PARTITIONS: u32 = 4;

/// A topic of a test's own, whose name is the prefix of the test's transactional ids.
struct Topic {
    bootstrap: String,
    name: String,
    admin: ProtocolClient,
}

type ToTopic = Box<dyn FnMut(InBatch<'_, String>, &mut Outgoing) -> Result<(), BoxError> + Send>;

impl Topic {
    fn new() -> Self {
        let kafka = Kafka::shared().expect("a broker");
        let (bootstrap, name) = (kafka.bootstrap().to_owned(), unique_name("conformance"));
        kafka.create_topic(&name, PARTITIONS).expect("create the topic");
        let config =
            ProtocolConfig::from_properties([("bootstrap.servers", &bootstrap)]).expect("an address");
        let admin = ProtocolClient::new(config).expect("a client");
        Self { bootstrap, name, admin }
    }

    async fn transactions(&self) -> Result<Vec<Listed>, BoxError> {
        let prefix = format!("{}.", self.name);
        let listed = self.admin.list(&[], PATIENCE).await?;
        Ok(listed.into_iter().filter(|listed| listed.transactional_id.starts_with(&prefix)).collect())
    }

    /// Waits until what was decided is visible: markers are written behind the answer.
    async fn quiet(&self) -> Result<(), BoxError> {
        let is_under_way = |state| matches!(state, State::PrepareCommit | State::PrepareAbort);
        while self.transactions().await?.iter().any(|listed| is_under_way(listed.state)) {}
        Ok(())
    }
}

fn read(bootstrap: &str, topic: &str) -> Result<Vec<u64>, BoxError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "conformance")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        // The end is told by an answer without records, and the broker keeps that back for so long.
        .set("fetch.wait.max.ms", "5")
        .create()?;
    let mut from = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        from.add_partition_offset(topic, partition as i32, Offset::Beginning)?;
    }
    consumer.assign(&from)?;
    let (mut numbers, mut ended) = (Vec::new(), BTreeSet::new());
    while ended.len() < PARTITIONS as usize {
        match consumer.poll(PATIENCE).ok_or("nothing was read in time")? {
            Ok(message) => {
                numbers.push(std::str::from_utf8(message.payload().ok_or("a tombstone")?)?.parse()?)
            }
            Err(KafkaError::PartitionEOF(partition)) => drop(ended.insert(partition)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(numbers)
}

impl TwoPhaseTarget for Topic {
    type Item = String;
    type Sink = TransactionalSink<String, ToTopic>;

    fn sinks(&self, count: u32) -> Vec<Self::Sink> {
        let sink = |subtask: u32| {
            let topic = self.name.clone();
            let serialise: ToTopic = Box::new(move |record, out| {
                let partition = subtask % PARTITIONS;
                out.push(&Message::to(&topic).partition(partition).value(record.item().as_bytes()));
                Ok(())
            });
            let config = KafkaSinkConfig::new(&self.bootstrap).topics([&self.name]);
            TransactionalSink::new(config, &self.name, "out", serialise).expect("a configuration that works")
        };
        (0..count).map(sink).collect()
    }

    fn item(&self, number: u64) -> String {
        number.to_string()
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        self.quiet().await?;
        let (bootstrap, topic) = (self.bootstrap.clone(), self.name.clone());
        tokio::task::spawn_blocking(move || read(&bootstrap, &topic)).await?
    }

    async fn left_over(&self) -> Result<Option<Vec<String>>, BoxError> {
        self.quiet().await?;
        let listed = self.transactions().await?.into_iter();
        let open = listed.filter(|listed| listed.state == State::Ongoing);
        Ok(Some(open.map(|listed| listed.transactional_id).collect()))
    }

    /// As the broker does when the time is up: it aborts, and raises the epoch.
    async fn lose(&self, handle: &TransactionHandle) -> Result<bool, BoxError> {
        let TransactionHandle { transactional_id, producer_id, epoch, .. } = handle;
        let key = TransactionKey { transactional_id, producer_id: *producer_id, epoch: *epoch };
        self.admin.end(key, Ending::Abort, PATIENCE).await?;
        Ok(true)
    }

    // Each makes several producers.
    fn histories(&self) -> Histories {
        Histories::count(4)
    }
}

/// The scenarios about what is committed after a crash; all of them are in the long form, which takes minutes.
///
/// [TPL-18] [KSK-10] [KSK-12]
mod two_phase_in_short {
    levada_conformance::scenario_tests! { two_phase, crate::Topic::new();
        nothing_is_visible_before_its_checkpoint_is_complete
        stored_handle_is_enough_to_commit
        commit_can_be_repeated_by_anyone
        abort_can_be_repeated_by_anyone
        lost_transaction_is_never_committed_silently
        inspection_tells_what_became_of_each_transaction
        fence_spares_what_is_kept_and_ends_the_rest
    }
}

/// [TPL-16] [TPL-18] [KSK-10] [KSK-12]
#[cfg(feature = "long-tests")]
mod two_phase {
    levada_conformance::two_phase_tests!(crate::Topic::new());
}
