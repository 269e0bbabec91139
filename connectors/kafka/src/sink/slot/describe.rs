//! Who a transactional id is, as its coordinator knows it.

use std::fmt;
use std::future::Future;

use levada_core::BoxError;

/// What a coordinator tells transactions of one id apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProducerIdentity {
    /// The producer id.
    pub producer_id: i64,
    /// The epoch: one higher with each initialisation.
    pub epoch: i16,
}

impl fmt::Display for ProducerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "producer {} in epoch {}", self.producer_id, self.epoch)
    }
}

/// Asks the coordinator of a transactional id. The client itself does not tell what identity it was given.
pub trait Describe: fmt::Debug + Send + Sync + 'static {
    /// Returns the identity that was given at the last initialisation; `None` if the coordinator does not know the id.
    ///
    /// # Errors
    /// The coordinator cannot be asked, or has something open under the id: the slot has written nothing yet, so that would be
    /// somebody else's.
    fn describe(
        &self,
        transactional_id: &str,
    ) -> impl Future<Output = Result<Option<ProducerIdentity>, BoxError>> + Send;
}
