//! WriteTxnMarkers, at the leader of a partition: the end of a transaction there, in its coordinator's place.

use std::time::Duration;

use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{ProducerId, TopicName, WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::code::ErrorCode;
use super::error::{ProtocolError, accepted};
use super::retry::Call;

/// The commit of a transaction, as it is to stand in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommitMarker {
    /// The producer of the transaction.
    pub(crate) producer_id: i64,
    /// The epoch in which it was written. A leader takes no lower one than it knows.
    pub(crate) epoch: i16,
    /// In whose name it is written: the epoch of the coordinator that has written the last marker of this producer, zero where
    /// there is none. A leader refuses a lower one than it knows, and with a higher one it would refuse the coordinator.
    pub(crate) coordinator_epoch: i32,
}

impl ProtocolClient {
    /// Writes the commit of a transaction into a partition, as its coordinator does. Nothing but this makes records visible that
    /// are committed and whose marker was left out; where there is one already, another one changes nothing.
    ///
    /// Only for a transaction whose commit is decided, with the one epoch that it has for itself: leaders ask nobody.
    ///
    /// # Errors
    /// `CLUSTER_AUTHORIZATION_FAILED` without ALTER on the cluster; [`ProtocolError::OutcomeUnknown`] where the answer is lost:
    /// look whether it is there.
    pub(crate) async fn write_commit_marker(
        &self,
        (topic, partition): (&str, i32),
        marker: CommitMarker,
        within: Duration,
    ) -> Result<(), ProtocolError> {
        let CommitMarker { producer_id, epoch, .. } = marker;
        let told =
            format!("WriteTxnMarkers of producer {producer_id}, epoch {epoch}, in {topic}[{partition}]");
        let mut call = Call::new(told, within);
        let request = writing(topic, partition, marker);
        loop {
            match self.write_once((topic, partition), &request, &call).await {
                Ok(()) => return Ok(()),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    async fn write_once(
        &self,
        (topic, partition): (&str, i32),
        request: &WriteTxnMarkersRequest,
        call: &Call,
    ) -> Result<(), ProtocolError> {
        let leader = self.leader(topic, partition, call).await?;
        let answer = self.ask_broker(leader, request, call).await?;
        let code =
            code_of(&answer).ok_or_else(|| self.malformed(call, "the partition is not in it".to_owned()))?;
        match ErrorCode::of(code) {
            // The cluster knows the partition, and this broker has not heard of it yet.
            Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
                Err(ProtocolError::NoLeader { topic: topic.to_owned(), partition })
            }
            _ => accepted(&call.told, code),
        }
    }
}

fn writing(topic: &str, partition: i32, marker: CommitMarker) -> WriteTxnMarkersRequest {
    let place = WritableTxnMarkerTopic::default()
        .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
        .with_partition_indexes(vec![partition]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(ProducerId(marker.producer_id))
        .with_producer_epoch(marker.epoch)
        .with_transaction_result(true)
        .with_coordinator_epoch(marker.coordinator_epoch)
        .with_topics(vec![place]);
    WriteTxnMarkersRequest::default().with_markers(vec![marker])
}

/// Of the one partition that was asked for.
fn code_of(answer: &WriteTxnMarkersResponse) -> Option<i16> {
    let topics = answer.markers.iter().flat_map(|marker| &marker.topics);
    topics.flat_map(|topic| &topic.partitions).map(|told| told.error_code).next()
}
