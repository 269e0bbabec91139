//! Marking a transaction, for whoever can.

use std::future::Future;

use crate::sink::producing::ProduceError;

/// Writes the marker of a slot's transaction.
pub(crate) trait Mark: Sync {
    /// Why it cannot be written, or the slot not frozen.
    type Error: From<ProduceError>;

    /// Writes it: an offset of a partition that the transaction has written to.
    fn mark(&self, topic: &str, partition: u32) -> impl Future<Output = Result<(), Self::Error>> + Send;
}
