//! DescribeProducers, at the leader of a partition: who holds back readers of committed records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::{DescribeProducersResponse, PartitionResponse};
use kafka_protocol::messages::{DescribeProducersRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use levada_core::Timestamp;

use super::client::ProtocolClient;
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
        let mut call = Call::new("DescribeProducers", within);
        let topics: Vec<&str> = partitions.keys().map(String::as_str).collect();
        let cluster = loop {
            match self.read_cluster(&topics, &call).await {
                Ok(told) => break told.cluster,
                Err(error) => call.pause(error).await?,
            }
        };
        let mut by_leader: BTreeMap<i32, BTreeMap<&str, Vec<i32>>> = BTreeMap::new();
        for (topic, partitions) in partitions {
            for &partition in partitions {
                let known = cluster.topics.get(topic).and_then(|known| known.partitions.get(&partition));
                if let Some(leader) = known.and_then(|leader| leader.broker) {
                    by_leader.entry(leader).or_default().entry(topic).or_default().push(partition);
                }
            }
        }
        let parts = by_leader.iter().map(|(leader, asked)| self.describe_producers_at(*leader, asked, &call));
        Ok(join_all(parts).await.into_iter().flatten().collect())
    }

    async fn describe_producers_at(
        &self,
        leader: i32,
        asked: &BTreeMap<&str, Vec<i32>>,
        call: &Call,
    ) -> Vec<((String, i32), Vec<ActiveProducer>)> {
        let topics = asked.iter().map(|(topic, partitions)| {
            let name = TopicName(StrBytes::from_string((*topic).to_owned()));
            TopicRequest::default().with_name(name).with_partition_indexes(partitions.clone())
        });
        let request = DescribeProducersRequest::default().with_topics(topics.collect());
        let answer = match self.ask_broker(leader, &request, call).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(%error, leader, "a leader does not tell the producers of its partitions");
                return Vec::new();
            }
        };
        let of_topic = answer.topics.into_iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |told| (name.clone(), told))
        });
        let told = of_topic.filter(|(_, told)| ErrorCode::of(told.error_code).is_none());
        told.map(|(topic, told)| {
            let producers = told.active_producers.into_iter().map(active).collect();
            ((topic, told.partition_index), producers)
        })
        .collect()
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
        let answer = self.ask_broker(leader, &request, call).await?;
        let told = of_partition(answer, topic, partition)
            .ok_or_else(|| self.malformed(call, "the partition is not in it".to_owned()))?;
        match ErrorCode::of(told.error_code) {
            None => Ok(told.active_producers.into_iter().map(active).collect()),
            // The cluster knows the partition, and this broker has not heard of it yet.
            Some(ErrorCode(3)) => Err(ProtocolError::NoLeader { topic: topic.to_owned(), partition }),
            Some(code) => {
                let message = told.error_message.map(|message| message.to_string());
                Err(ProtocolError::Refused { request: call.told.clone(), code, message })
            }
        }
    }

    async fn leader(&self, topic: &str, partition: i32, call: &Call) -> Result<i32, ProtocolError> {
        let cluster = self.read_cluster(&[topic], call).await?.complete()?;
        let found = cluster.topics.get(topic).and_then(|known| known.partitions.get(&partition));
        let topic = topic.to_owned();
        let Some(leader) = found else {
            return Err(ProtocolError::UnknownPartition { topic, partition });
        };
        leader.broker.ok_or(ProtocolError::NoLeader { topic, partition })
    }
}

fn of_partition(answer: DescribeProducersResponse, topic: &str, partition: i32) -> Option<PartitionResponse> {
    let topic = answer.topics.into_iter().find(|told| told.name.as_str() == topic)?;
    topic.partitions.into_iter().find(|told| told.partition_index == partition)
}

fn active(told: kafka_protocol::messages::describe_producers_response::ProducerState) -> ActiveProducer {
    ActiveProducer {
        producer_id: told.producer_id.0,
        epoch: told.producer_epoch,
        open_from: u64::try_from(told.current_txn_start_offset).ok(),
        last: (told.last_timestamp >= 0).then_some(Timestamp(told.last_timestamp)),
    }
}
