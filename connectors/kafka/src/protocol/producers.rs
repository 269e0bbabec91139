//! DescribeProducers, at the leader of a partition: who holds back readers of committed records.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::{DescribeProducersResponse, PartitionResponse};
use kafka_protocol::messages::{DescribeProducersRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use levada_core::Timestamp;

use super::client::ProtocolClient;
use super::cluster::Told;
use super::code::ErrorCode;
use super::error::ProtocolError;
use super::retry::Call;

/// A producer that a partition keeps in mind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveProducer {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// The offset of the first record of its open transaction, if it has one. Under `read_committed`, the lowest of a
    /// partition is the last stable offset.
    pub open_from: Option<u64>,
    /// The timestamp of its last record, if it has written one.
    pub last: Option<Timestamp>,
    /// The epoch of the coordinator that has written its last marker here, if there is one.
    pub coordinator_epoch: Option<i32>,
}

/// What one look at a partition has come to.
#[derive(Debug)]
pub(crate) enum Look {
    /// Its leader has told its producers.
    Told(Vec<ActiveProducer>),
    /// There is no such topic or partition, says the cluster.
    Absent,
    /// Nobody has told; why.
    Silent(Arc<ProtocolError>),
}

impl ProtocolClient {
    /// Asks the leader of a partition for its producers.
    ///
    /// # Errors
    /// [`ProtocolError::UnknownPartition`]; [`ProtocolError::Refused`] where we may not read the topic.
    pub async fn describe_producers(
        &self,
        topic: &str,
        partition: i32,
        within: Duration,
    ) -> Result<Vec<ActiveProducer>, ProtocolError> {
        let mut call = Call::new(format!("DescribeProducers of {topic}[{partition}]"), within);
        loop {
            match self.describe_producers_once(topic, partition, &call).await {
                Ok(producers) => return Ok(producers),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    /// Asks the leaders of many partitions for their producers, each leader once, and all of them at the same time. A partition
    /// of which nobody tells within `within`, or that is not there, is left out.
    ///
    /// # Errors
    /// Nobody tells who leads what.
    pub async fn describe_producers_of(
        &self,
        partitions: &BTreeMap<String, BTreeSet<i32>>,
        within: Duration,
    ) -> Result<BTreeMap<(String, i32), Vec<ActiveProducer>>, ProtocolError> {
        let looks = self.look_at(partitions, within).await?;
        let told = looks.into_iter().filter_map(|(place, look)| match look {
            Look::Told(producers) => Some((place, producers)),
            Look::Absent => None,
            Look::Silent(error) => {
                tracing::debug!(%error, "a leader does not tell the producers of its partitions");
                None
            }
        });
        Ok(told.collect())
    }

    /// The same once, with what has come of each partition.
    pub(crate) async fn look_at(
        &self,
        partitions: &BTreeMap<String, BTreeSet<i32>>,
        within: Duration,
    ) -> Result<BTreeMap<(String, i32), Look>, ProtocolError> {
        let mut call = Call::new("DescribeProducers", within);
        let topics: Vec<&str> = partitions.keys().map(String::as_str).collect();
        let told = loop {
            match self.read_cluster(&topics, &call).await {
                Ok(told) => break told,
                Err(error) => call.pause(error).await?,
            }
        };
        let mut looks = BTreeMap::new();
        let mut by_leader: BTreeMap<i32, BTreeMap<&str, Vec<i32>>> = BTreeMap::new();
        for (topic, partition) in each(partitions) {
            match leader_in(&told, topic, partition) {
                Ok(leader) => by_leader.entry(leader).or_default().entry(topic).or_default().push(partition),
                Err(look) => drop(looks.insert((topic.to_owned(), partition), look)),
            }
        }
        let parts = by_leader.iter().map(|(leader, asked)| self.look_at_leader(*leader, asked, &call));
        looks.extend(join_all(parts).await.into_iter().flatten());
        Ok(looks)
    }

    async fn look_at_leader(
        &self,
        leader: i32,
        asked: &BTreeMap<&str, Vec<i32>>,
        call: &Call,
    ) -> Vec<((String, i32), Look)> {
        let topics = asked.iter().map(|(topic, partitions)| {
            let name = TopicName(StrBytes::from_string((*topic).to_owned()));
            TopicRequest::default().with_name(name).with_partition_indexes(partitions.clone())
        });
        let request = DescribeProducersRequest::default().with_topics(topics.collect());
        let mut answered = self.ask_broker(leader, &request, call).await.map_err(Arc::new);
        let places = asked.iter().flat_map(|(topic, partitions)| partitions.iter().map(|one| (*topic, *one)));
        let look = |(topic, partition): (&str, i32)| {
            let told = match &mut answered {
                Ok(answer) => take_partition(answer, topic, partition),
                Err(error) => return ((topic.to_owned(), partition), Look::Silent(Arc::clone(error))),
            };
            let of = || format!("DescribeProducers of {topic}[{partition}]");
            let look = match told.map(|told| (ErrorCode::of(told.error_code), told.active_producers)) {
                Some((None, producers)) => Look::Told(producers.into_iter().map(active).collect()),
                // The cluster knows the partition, and this broker has not heard of it yet.
                None | Some((Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), _)) => no_leader(topic, partition),
                Some((Some(code), _)) => silent(ProtocolError::refused(&of(), code)),
            };
            ((topic.to_owned(), partition), look)
        };
        places.map(look).collect()
    }

    async fn describe_producers_once(
        &self,
        topic: &str,
        partition: i32,
        call: &Call,
    ) -> Result<Vec<ActiveProducer>, ProtocolError> {
        let leader = self.leader(topic, partition, call).await?;
        let asked = TopicRequest::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partition_indexes(vec![partition]);
        let request = DescribeProducersRequest::default().with_topics(vec![asked]);
        let mut answer = self.ask_broker(leader, &request, call).await?;
        let told = take_partition(&mut answer, topic, partition)
            .ok_or_else(|| self.malformed(call, "the partition is not in it".to_owned()))?;
        match ErrorCode::of(told.error_code) {
            None => Ok(told.active_producers.into_iter().map(active).collect()),
            // The cluster knows the partition, and this broker has not heard of it yet.
            Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                Err(ProtocolError::NoLeader { topic: topic.to_owned(), partition })
            }
            Some(code) => {
                let message = told.error_message.map(|message| message.to_string());
                Err(ProtocolError::Refused { request: call.told.clone(), code, message })
            }
        }
    }

    pub(super) async fn leader(
        &self,
        topic: &str,
        partition: i32,
        call: &Call,
    ) -> Result<i32, ProtocolError> {
        let cluster = self.read_cluster(&[topic], call).await?.complete()?;
        let found = cluster.topics.get(topic).and_then(|known| known.partitions.get(&partition));
        let topic = topic.to_owned();
        let Some(leader) = found else {
            return Err(ProtocolError::UnknownPartition { topic, partition });
        };
        leader.broker.ok_or(ProtocolError::NoLeader { topic, partition })
    }
}

fn each(partitions: &BTreeMap<String, BTreeSet<i32>>) -> impl Iterator<Item = (&str, i32)> {
    partitions.iter().flat_map(|(topic, partitions)| partitions.iter().map(|one| (topic.as_str(), *one)))
}

fn silent(error: ProtocolError) -> Look {
    Look::Silent(Arc::new(error))
}

fn no_leader(topic: &str, partition: i32) -> Look {
    silent(ProtocolError::NoLeader { topic: topic.to_owned(), partition })
}

/// Who leads a partition, or what there is to say instead.
fn leader_in(told: &Told, topic: &str, partition: i32) -> Result<i32, Look> {
    match (told.cluster.topics.get(topic), told.refused.get(topic)) {
        (Some(known), _) => match known.partitions.get(&partition) {
            Some(leader) => leader.broker.ok_or_else(|| no_leader(topic, partition)),
            None => Err(Look::Absent),
        },
        (None, Some(&ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)) => Err(Look::Absent),
        (None, Some(code)) => Err(silent(ProtocolError::refused(&format!("Metadata of {topic}"), *code))),
        (None, None) => Err(no_leader(topic, partition)),
    }
}

fn take_partition(
    answer: &mut DescribeProducersResponse,
    topic: &str,
    partition: i32,
) -> Option<PartitionResponse> {
    let topic = answer.topics.iter_mut().find(|told| told.name.as_str() == topic)?;
    topic.partitions.iter_mut().find(|told| told.partition_index == partition).map(mem::take)
}

fn active(told: kafka_protocol::messages::describe_producers_response::ProducerState) -> ActiveProducer {
    ActiveProducer {
        producer_id: told.producer_id.0,
        epoch: told.producer_epoch,
        open_from: u64::try_from(told.current_txn_start_offset).ok(),
        last: (told.last_timestamp >= 0).then_some(Timestamp(told.last_timestamp)),
        coordinator_epoch: (told.coordinator_epoch >= 0).then_some(told.coordinator_epoch),
    }
}
