//! What readers of committed records see of a topic that the transactional Kafka sink writes.

use std::fmt;

use levada_testcontainers::oracle::{self, TopicContents};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::due::{Due, NotDue};
use super::feed::PARTITIONS;
use super::{Fed, Verdict, evidence};
use crate::process::PATIENCE;

/// Judges visible records as they appear: of each key the numbers 0, 1, 2, …, each once, in this order.
pub struct Visible {
    brokers: String,
    topic: String,
    /// The topic that is read by who writes this one.
    fed: String,
    consumer: BaseConsumer,
    /// The offset behind the last record that was read, by partition.
    next: Vec<i64>,
    due: Due,
}

impl fmt::Debug for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visible")
            .field("topic", &self.topic)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Visible {
    /// Judges a topic, from its first record on, into which is copied what is `fed`.
    ///
    /// # Panics
    /// Panics if no consumer can be made.
    pub fn of(brokers: &str, fed: &str, topic: &str) -> Self {
        let consumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "judge")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", "20")
            .create()
            .expect("a consumer");
        let (brokers, topic, fed) = (brokers.to_owned(), topic.to_owned(), fed.to_owned());
        Self { brokers, topic, fed, consumer, next: vec![0; PARTITIONS], due: Due::default() }
    }

    /// Reads what has become visible since the last look, up to the first record of an open transaction.
    ///
    /// # Errors
    /// The first number that comes again, or before one that is due, and what both topics hold of its key.
    pub fn look(&mut self) -> Verdict {
        self.read().map_err(|wrong| match wrong.downcast_ref::<NotDue>() {
            Some(NotDue { key, due, .. }) => {
                let evidence = evidence::of(&self.brokers, &[&self.fed, &self.topic], key, *due);
                format!("{wrong}{evidence}").into()
            }
            None => wrong,
        })
    }

    fn read(&mut self) -> Verdict {
        let mut from = TopicPartitionList::new();
        for (partition, next) in (0..).zip(&self.next) {
            from.add_partition_offset(&self.topic, partition, Offset::Offset(*next))?;
        }
        // Anew each time: the end of a partition is told once.
        self.consumer.assign(&from)?;
        let mut ended = 0;
        while ended < PARTITIONS {
            match self.consumer.poll(PATIENCE).ok_or("nothing was read in time")? {
                Ok(record) => {
                    let place = format!("partition {} at offset {}", record.partition(), record.offset());
                    self.due.take(str::from_utf8(record.payload().unwrap_or_default())?, &place)?;
                    self.next[record.partition() as usize] = record.offset() + 1;
                }
                Err(KafkaError::PartitionEOF(_)) => ended += 1,
                // A broker that is gone for a moment: the client goes on by itself.
                Err(error) if is_of_an_outage(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.consumer.unassign()?)
    }

    /// Returns how many records were read.
    pub fn records(&self) -> u64 {
        self.due.lines()
    }

    /// Judges everything anew, as Kafka's own console consumer reads it, against what was fed.
    ///
    /// # Errors
    /// What is lost, doubled or out of order, or a transaction that was left open.
    pub fn judge_all(&self, fed: &Fed) -> Result<TopicContents, Box<dyn std::error::Error + Send + Sync>> {
        let contents = oracle::topic(&self.brokers, &self.topic)?;
        let mut due = Due::default();
        for record in &contents.committed {
            let place = format!("partition {} at offset {}", record.partition, record.offset);
            let text = record.value.as_ref().and_then(|value| value.text()).ok_or("a strange record")?;
            due.take(text, &place)?;
        }
        fed.compare(due.counts())?;
        match contents.open.first() {
            Some(open) => Err(format!("a transaction was left open: {open}").into()),
            None => Ok(contents),
        }
    }
}

fn is_of_an_outage(error: &KafkaError) -> bool {
    use rdkafka::types::RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, OperationTimedOut};
    let code = error.rdkafka_error_code();
    code.is_some_and(|code| matches!(code, AllBrokersDown | BrokerTransportFailure | OperationTimedOut))
}
