//! The marker that is written inside each transaction.

use levada_core::{CheckpointId, SinkError};

use super::error::ResolveError;
use super::resolver::{Resolver, key_of};
use crate::protocol::{Committed, TransactionKey};
use crate::sink::recovery::{TransactionHandle, TransactionNaming};
use crate::sink::slot::Mark;

impl Resolver {
    /// [KSK-15] Marks an open transaction with its checkpoint: an offset of its id's group.
    ///
    /// Not by the transaction's own client: librdkafka's call for it does not keep to its deadline while a coordinator moves.
    pub(in crate::sink) async fn mark(
        &self,
        key: TransactionKey<'_>,
        checkpoint: CheckpointId,
        topic: &str,
        partition: u32,
    ) -> Result<(), ResolveError> {
        let CheckpointId { attempt, sequence } = checkpoint;
        let place = (topic, i32::try_from(partition).unwrap_or(i32::MAX));
        let marker = Committed { offset: sequence, metadata: attempt.to_string() };
        let group = TransactionNaming::marker_group(key.transactional_id);
        let marked = self.admin.commit_offset(key, &group, place, &marker, self.within);
        marked.await.map_err(ResolveError::asking("mark a transaction with its checkpoint"))
    }
}

/// Marks the transaction of a handle.
#[derive(Debug)]
pub(super) struct Marking<'a> {
    pub(super) resolver: &'a Resolver,
    pub(super) handle: &'a TransactionHandle,
}

impl Mark for Marking<'_> {
    type Error = SinkError;

    async fn mark(&self, topic: &str, partition: u32) -> Result<(), SinkError> {
        let Self { resolver, handle } = self;
        Ok(resolver.mark(key_of(handle), handle.checkpoint, topic, partition).await?)
    }
}
