//! AddOffsetsToTxn and TxnOffsetCommit: an offset of a group, in a transaction that somebody else writes.

use std::time::Duration;

use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, GroupId, ProducerId, TopicName, TransactionalId, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::code::ErrorCode;
use super::error::ProtocolError;
use super::known::CoordinatorOf;
use super::offsets::Committed;
use super::retry::Call;
use super::transaction::TransactionKey;

impl ProtocolClient {
    /// Commits an offset of a group without members in an open transaction: it is there when the transaction's records are.
    ///
    /// # Errors
    /// As [`end`](super::TransactionAdmin::end). Where the answer is lost, the transaction must not be committed: the request
    /// may come through late, and would open another one in this epoch.
    pub(crate) async fn commit_offset(
        &self,
        transaction: TransactionKey<'_>,
        group: &str,
        place: (&str, i32),
        committed: &Committed,
        within: Duration,
    ) -> Result<(), ProtocolError> {
        let mut call = Call::new(format!("AddOffsetsToTxn of {transaction}"), within);
        let of = (CoordinatorOf::Transaction, transaction.transactional_id);
        let add = added(transaction, group);
        self.ask_coordinator(of, &add, |answer| answer.error_code, &mut call).await?;
        let mut call = Call::new(format!("TxnOffsetCommit of {transaction}"), within);
        let of = (CoordinatorOf::Group, group);
        let commit = committing(transaction, group, place, committed);
        loop {
            let Err(error) = self.ask_coordinator(of, &commit, worst_code, &mut call).await else {
                return Ok(());
            };
            let error = known_elsewhere(error, place);
            if !error.is_retriable() {
                return Err(error);
            }
            call.pause(error).await?;
        }
    }
}

/// Records of the transaction are there, so the cluster knows the partition: this broker has not heard of it yet.
fn known_elsewhere(error: ProtocolError, (topic, partition): (&str, i32)) -> ProtocolError {
    match error.code() {
        Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {
            ProtocolError::NoLeader { topic: topic.to_owned(), partition }
        }
        _ => error,
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn added(transaction: TransactionKey<'_>, group: &str) -> AddOffsetsToTxnRequest {
    AddOffsetsToTxnRequest::default()
        .with_transactional_id(TransactionalId(text(transaction.transactional_id)))
        .with_producer_id(ProducerId(transaction.producer_id))
        .with_producer_epoch(transaction.epoch)
        .with_group_id(GroupId(text(group)))
}

fn committing(
    transaction: TransactionKey<'_>,
    group: &str,
    (topic, partition): (&str, i32),
    committed: &Committed,
) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(i64::try_from(committed.offset).unwrap_or(i64::MAX))
        .with_committed_metadata(Some(text(&committed.metadata)));
    let topic = TxnOffsetCommitRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![partition]);
    TxnOffsetCommitRequest::default()
        .with_transactional_id(TransactionalId(text(transaction.transactional_id)))
        .with_group_id(GroupId(text(group)))
        .with_producer_id(ProducerId(transaction.producer_id))
        .with_producer_epoch(transaction.epoch)
        // Of nobody's membership.
        .with_generation_id(-1)
        .with_topics(vec![topic])
}

fn worst_code(answer: &TxnOffsetCommitResponse) -> i16 {
    let codes = answer.topics.iter().flat_map(|topic| topic.partitions.iter().map(|told| told.error_code));
    codes.into_iter().find(|code| *code != 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::error::accepted;
    use super::*;

    /// [KSK-21] the classing's part: the group's coordinator may hear of a topic later than its leader, which has records already.
    #[test]
    fn broker_that_has_not_heard_of_a_partition_yet_is_asked_again() {
        let told = |code| accepted("TxnOffsetCommit", code).expect_err("an error");
        assert!(known_elsewhere(told(3), ("delays", 0)).is_retriable());
        assert!(!known_elsewhere(told(29), ("delays", 0)).is_retriable());
    }
}
