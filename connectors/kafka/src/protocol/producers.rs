//! Who keeps a partition's last stable offset from moving.

use std::time::Duration;

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::{DescribeProducersRequest, TopicName};
use kafka_protocol::protocol::{Request as _, StrBytes};
use levada_core::Timestamp;
use tokio::time::Instant;

use super::admin::Admin;
use super::api;
use super::backoff::Tries;
use super::error::{ErrorCode, ProtocolError};

/// The partition has no leader now.
const NO_LEADER: ErrorCode = ErrorCode(5);

/// A transaction that has records in a partition and is neither committed nor aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Who writes it.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// The offset of its first record there: nothing from there on is visible under `read_committed`.
    pub first_offset: i64,
    /// When it last wrote there, by the broker's clock; `None` where the broker does not know.
    pub last_written: Option<Timestamp>,
}

impl Admin {
    /// Returns the open transactions of a partition, the one in front first. The leader tells.
    ///
    /// # Errors
    /// The leader is not found or does not answer within the deadline, or refuses.
    pub async fn open_transactions(
        &self,
        topic: &str,
        partition: i32,
        within: Duration,
    ) -> Result<Vec<OpenTransaction>, ProtocolError> {
        let mut tries = Tries::new(api::name(DescribeProducersRequest::KEY), within);
        loop {
            match self.open_transactions_once(topic, partition, tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn open_transactions_once(
        &self,
        topic: &str,
        partition: i32,
        until: Instant,
    ) -> Result<Vec<OpenTransaction>, ProtocolError> {
        let api = api::name(DescribeProducersRequest::KEY);
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        let asked = TopicRequest::default().with_name(name).with_partition_indexes(vec![partition]);
        let request = DescribeProducersRequest::default().with_topics(vec![asked]);
        let subject = format!("{topic}-{partition}");
        let cluster = self.metadata(&[topic], until).await?;
        let Some(leader) = cluster.leader(topic, partition) else {
            let address = self.brokers.bootstrap().join(",");
            return Err(ProtocolError::Refused { address, api, subject, code: NO_LEADER });
        };
        let answer = self.ask_once(leader, &request, i16::MAX, until).await?;
        let told = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let address = leader.to_owned();
        match told {
            None => Err(ProtocolError::Silent { address, api, subject }),
            Some(told) if told.error_code != 0 => {
                Err(ProtocolError::Refused { address, api, subject, code: ErrorCode(told.error_code) })
            }
            Some(told) => Ok(open(told.active_producers)),
        }
    }
}

fn open(producers: Vec<ProducerState>) -> Vec<OpenTransaction> {
    let open = producers.into_iter().filter(|state| state.current_txn_start_offset >= 0);
    let mut open: Vec<_> = open
        .map(|state| OpenTransaction {
            producer_id: state.producer_id.0,
            epoch: state.producer_epoch,
            first_offset: state.current_txn_start_offset,
            last_written: (state.last_timestamp >= 0).then_some(Timestamp(state.last_timestamp)),
        })
        .collect();
    open.sort_by_key(|transaction| transaction.first_offset);
    open
}
