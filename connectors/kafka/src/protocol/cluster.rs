//! Metadata: who is there, who leads what, and what topics and cluster are called by themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::address::Address;
use super::client::ProtocolClient;
use super::code::ErrorCode;
use super::error::ProtocolError;
use super::retry::Call;

/// A cluster, as one of its brokers sees it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its id; empty where it has none.
    pub id: String,
    /// The broker that takes changes of metadata, if there is one now. With KRaft that is any.
    pub controller: Option<i32>,
    /// The brokers that serve, by number.
    pub brokers: BTreeMap<i32, Address>,
    /// The topics that were asked for.
    pub topics: BTreeMap<String, Topic>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// What it is called by itself: another one when the topic is made anew under the same name.
    pub id: TopicId,
    /// Its partitions.
    pub partitions: BTreeMap<i32, Leader>,
}

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// The broker, if there is one now.
    pub broker: Option<i32>,
    /// How many leaders there were before; grows with each.
    pub epoch: i32,
}

/// The id of a topic. Printed as Kafka's tools do: URL-safe base64 without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // 128 bits are 22 digits of six bits; the last one has two bits and four that are zero.
        let bits = u128::from_be_bytes(self.0);
        for place in 0..22 {
            let digit = if place < 21 { bits >> (122 - 6 * place) } else { bits << 4 };
            write!(f, "{}", char::from(DIGITS[(digit & 63) as usize]))?;
        }
        Ok(())
    }
}

/// A cluster, and what it refused to tell.
pub(super) struct Told {
    pub(super) cluster: Cluster,
    pub(super) refused: BTreeMap<String, ErrorCode>,
}

impl ProtocolClient {
    /// Asks for the cluster, and for these topics. Creates none.
    ///
    /// # Errors
    /// [`ProtocolError::Refused`] for a topic that is not there, or that we may not describe.
    pub async fn cluster(&self, topics: &[&str], within: Duration) -> Result<Cluster, ProtocolError> {
        let mut call = Call::new(told(topics), within);
        loop {
            match self.read_cluster(topics, &call).await.and_then(Told::complete) {
                Ok(cluster) => return Ok(cluster),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    /// Asks once, and notes who is there.
    pub(super) async fn read_cluster(&self, topics: &[&str], call: &Call) -> Result<Told, ProtocolError> {
        let named = topics.iter().map(|topic| {
            let name = TopicName(StrBytes::from_string((*topic).to_owned()));
            MetadataRequestTopic::default().with_name(Some(name))
        });
        let request = MetadataRequest::default()
            .with_topics(Some(named.collect()))
            .with_allow_auto_topic_creation(false);
        let answer = self.ask_any(&request, call).await?;
        let told = Told::read(answer).map_err(|reason| self.malformed(call, reason))?;
        self.known().replace_brokers(told.cluster.brokers.clone());
        Ok(told)
    }
}

fn told(topics: &[&str]) -> String {
    if topics.is_empty() { "Metadata".to_owned() } else { format!("Metadata of {}", topics.join(", ")) }
}

impl Told {
    fn read(answer: MetadataResponse) -> Result<Self, String> {
        let mut brokers = BTreeMap::new();
        for broker in answer.brokers {
            brokers.insert(broker.node_id.0, Address::told(&broker.host, broker.port)?);
        }
        let (mut topics, mut refused) = (BTreeMap::new(), BTreeMap::new());
        for topic in answer.topics {
            let name = topic.name.as_ref().map(|name| name.to_string()).unwrap_or_default();
            match ErrorCode::of(topic.error_code) {
                None => drop(topics.insert(name, read_topic(topic))),
                Some(code) => drop(refused.insert(name, code)),
            }
        }
        let id = answer.cluster_id.map(|id| id.to_string()).unwrap_or_default();
        let controller = Some(answer.controller_id.0).filter(|id| *id >= 0);
        Ok(Self { cluster: Cluster { id, controller, brokers, topics }, refused })
    }

    /// Fails for a topic that was refused.
    pub(super) fn complete(self) -> Result<Cluster, ProtocolError> {
        match self.refused.into_iter().next() {
            None => Ok(self.cluster),
            Some((topic, code)) => Err(ProtocolError::refused(&told(&[&topic]), code)),
        }
    }
}

fn read_topic(topic: MetadataResponseTopic) -> Topic {
    let leader = |told: MetadataResponsePartition| {
        let broker = Some(told.leader_id.0).filter(|id| *id >= 0);
        (told.partition_index, Leader { broker, epoch: told.leader_epoch })
    };
    let partitions = topic.partitions.into_iter().map(leader).collect();
    Topic { id: TopicId(*topic.topic_id.as_bytes()), partitions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_is_printed_as_kafka_does() {
        assert_eq!(TopicId([0; 16]).to_string(), "A".repeat(22));
        assert_eq!(TopicId([0xff; 16]).to_string(), format!("{}w", "_".repeat(21)));
        let mut last = [0; 16];
        last[15] = 1;
        assert_eq!(TopicId(last).to_string(), format!("{}Q", "A".repeat(21)));
        last[0] = 0b1111_1000;
        assert_eq!(TopicId(last).to_string(), format!("-A{}Q", "A".repeat(19)));
    }
}
