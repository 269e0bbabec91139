//! Which brokers there are, and who leads which partition.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{DescribeConfigsRequest, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::{Request as _, StrBytes};
use tokio::time::Instant;

use super::admin::Admin;
use super::api;
use super::backoff::Tries;
use super::error::{ErrorCode, ProtocolError};

/// A broker, and where it listens for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Its number.
    pub id: i32,
    /// Host and port.
    pub address: String,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its id, which it keeps for ever.
    pub id: String,
    /// Those that are up.
    pub brokers: Vec<BrokerAddress>,
    /// Who leads the partitions that were asked for.
    pub(super) leaders: BTreeMap<(String, i32), i32>,
}

impl Cluster {
    pub(super) fn leader(&self, topic: &str, partition: i32) -> Option<&str> {
        let id = self.leaders.get(&(topic.to_owned(), partition))?;
        self.brokers.iter().find(|broker| broker.id == *id).map(|broker| broker.address.as_str())
    }
}

/// Kafka's number for a broker among the kinds of things that have settings.
const BROKER: i8 = 4;

impl Admin {
    /// Describes the cluster.
    ///
    /// # Errors
    /// No broker answers within the deadline, or none that can be spoken to.
    pub async fn cluster(&self, within: Duration) -> Result<Cluster, ProtocolError> {
        let mut tries = Tries::new("Metadata", within);
        loop {
            match self.metadata(&[], tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    /// Describes the cluster, and who leads these topics.
    pub(super) async fn metadata(&self, topics: &[&str], until: Instant) -> Result<Cluster, ProtocolError> {
        let named = |topic: &&str| {
            let name = TopicName(StrBytes::from_string((*topic).to_owned()));
            MetadataRequestTopic::default().with_name(Some(name))
        };
        let topics = topics.iter().map(named).collect();
        let request =
            MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false);
        let (asked, answer) = self.ask_any(&request, until).await?;
        cluster_of(answer, asked)
    }

    /// Returns a setting of the broker that `address` belongs to, as number; `None` if it has no such setting.
    ///
    /// # Errors
    /// The broker does not answer within the deadline, refuses, or the setting is no number.
    pub async fn broker_setting(
        &self,
        broker: &BrokerAddress,
        name: &'static str,
        within: Duration,
    ) -> Result<Option<i64>, ProtocolError> {
        let mut tries = Tries::new(api::name(DescribeConfigsRequest::KEY), within);
        loop {
            match self.broker_setting_once(broker, name, tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn broker_setting_once(
        &self,
        broker: &BrokerAddress,
        name: &'static str,
        until: Instant,
    ) -> Result<Option<i64>, ProtocolError> {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(BROKER)
            .with_resource_name(StrBytes::from_string(broker.id.to_string()))
            .with_configuration_keys(Some(vec![StrBytes::from_static_str(name)]));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let (api, address) = (api::name(DescribeConfigsRequest::KEY), broker.address.clone());
        let answer = self.ask_once(&address, &request, i16::MAX, until).await?;
        let Some(told) = answer.results.into_iter().next() else {
            return Err(ProtocolError::Silent { address, api, subject: format!("broker {}", broker.id) });
        };
        if told.error_code != 0 {
            let (subject, code) = (name.to_owned(), ErrorCode(told.error_code));
            return Err(ProtocolError::Refused { address, api, subject, code });
        }
        let setting = told.configs.into_iter().find(|setting| &*setting.name == name);
        let Some(value) = setting.and_then(|setting| setting.value) else { return Ok(None) };
        let no_number = |_| ProtocolError::Malformed { address, api, reason: format!("{name} is no number") };
        value.parse().map(Some).map_err(no_number)
    }
}

fn cluster_of(answer: MetadataResponse, asked: String) -> Result<Cluster, ProtocolError> {
    let mut leaders = BTreeMap::new();
    for topic in &answer.topics {
        let name = topic.name.as_ref().map(|name| name.0.to_string()).unwrap_or_default();
        if topic.error_code != 0 {
            let (api, code) = (api::name(MetadataRequest::KEY), ErrorCode(topic.error_code));
            return Err(ProtocolError::Refused {
                address: asked,
                api,
                subject: format!("topic {name}"),
                code,
            });
        }
        for partition in &topic.partitions {
            leaders.insert((name.clone(), partition.partition_index), partition.leader_id.0);
        }
    }
    let broker = |broker: &kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
        BrokerAddress { id: broker.node_id.0, address: address(&broker.host, broker.port) }
    };
    let Some(id) = answer.cluster_id.as_ref().map(ToString::to_string) else {
        let (api, subject) = (api::name(MetadataRequest::KEY), "its cluster's id".to_owned());
        return Err(ProtocolError::Silent { address: asked, api, subject });
    };
    Ok(Cluster { id, brokers: answer.brokers.iter().map(broker).collect(), leaders })
}

pub(super) fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
