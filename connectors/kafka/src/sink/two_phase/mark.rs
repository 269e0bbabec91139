//! The marker that is written inside each transaction.

use levada_core::{CheckpointId, SinkError};

use super::resolver::{ResolveError, Resolver, key_of};
use crate::protocol::Committed;
use crate::sink::recovery::TransactionHandle;
use crate::sink::slot::Mark;

/// [KSK-15] Marks an open transaction with its checkpoint: an offset of its subtask's group.
///
/// Not by the transaction's own client: librdkafka's call for it does not keep to its deadline while a coordinator moves.
#[derive(Debug)]
pub(in crate::sink) struct Marking<'a> {
    pub(in crate::sink) resolver: &'a Resolver,
    pub(in crate::sink) handle: &'a TransactionHandle,
}

impl Mark for Marking<'_> {
    type Error = SinkError;

    async fn mark(&self, topic: &str, partition: u32) -> Result<(), SinkError> {
        let Self { resolver, handle } = self;
        let CheckpointId { attempt, sequence } = handle.checkpoint;
        let place = (topic, i32::try_from(partition).unwrap_or(i32::MAX));
        let marker = Committed { offset: sequence, metadata: attempt.to_string() };
        let group = resolver.naming.marker_group(handle.subtask);
        let marked = resolver.admin.commit_offset(key_of(handle), &group, place, &marker, resolver.within);
        let doing = "mark a transaction with its checkpoint";
        Ok(marked.await.map_err(ResolveError::asking(doing))?)
    }
}
