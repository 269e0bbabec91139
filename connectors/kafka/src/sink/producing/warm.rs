//! Connecting a producer to the brokers that it will need.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode;

use super::config::KafkaSinkConfig;
use super::error::{ClientError, ProduceError};
use super::reports::Client;

/// How long the client is asked at once: in between, a refusal of the credentials is noticed.
const STEP: Duration = Duration::from_millis(200);

/// Waits until a broker has answered.
pub(super) fn reach(client: &Client, config: &KafkaSinkConfig, within: Duration) -> Result<(), ProduceError> {
    let started = Instant::now();
    while client.client().fetch_cluster_id(STEP).is_none() {
        let last = client.context().last_error();
        if let Some(cause) = last.filter(ClientError::is_authentication) {
            return Err(ProduceError::Authentication { bootstrap: config.bootstrap.clone(), cause });
        }
        if started.elapsed() >= within {
            return Err(away(client, config, "connecting", None));
        }
    }
    Ok(())
}

/// Says that no broker answered within all the time there was, and what was heard last.
pub(super) fn away(
    client: &Client,
    config: &KafkaSinkConfig,
    doing: &'static str,
    cause: Option<ClientError>,
) -> ProduceError {
    let last = cause.or_else(|| client.context().last_error());
    ProduceError::Away { bootstrap: config.bootstrap.clone(), within: config.open_within, doing, last }
}

/// Fetches what the client has to know of a topic before it can send, and returns one partition for each leader.
pub(super) fn learn(client: &Client, topic: &str, within: Duration) -> Result<Vec<i32>, ClientError> {
    let found =
        client.client().fetch_metadata(Some(topic), within).map_err(|error| ClientError::of(&error))?;
    if found.brokers().is_empty() {
        let code = RDKafkaErrorCode::BrokerNotAvailable;
        return Err(ClientError { code, text: "the cluster names no brokers".to_owned() });
    }
    let Some(found) = found.topics().iter().find(|found| found.name() == topic) else {
        return Err(missing());
    };
    if let Some(code) = found.error() {
        let code = RDKafkaErrorCode::from(code);
        return Err(ClientError { code, text: KafkaError::MetadataFetch(code).to_string() });
    }
    let mut leaders = BTreeMap::new();
    for partition in found.partitions() {
        leaders.entry(partition.leader()).or_insert(partition.id());
    }
    Ok(leaders.into_values().collect())
}

/// Makes connections to the leaders: the client connects to a broker when it first has something for it, and a question
/// is something.
pub(super) fn connect(client: &Client, topic: &str, partitions: &[i32], within: Duration) {
    for partition in partitions {
        // The answer does not matter: a leader that is away makes the first message wait for it, and nothing else.
        drop(client.client().fetch_watermarks(topic, *partition, within));
    }
}

fn missing() -> ClientError {
    let code = RDKafkaErrorCode::UnknownTopicOrPartition;
    ClientError { code, text: KafkaError::MetadataFetch(code).to_string() }
}
