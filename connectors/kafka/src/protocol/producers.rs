//! DescribeProducers, at the leader of a partition: who holds back readers of committed records.

use std::time::Duration;

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
