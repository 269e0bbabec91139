//! Who a producer is, asked at its coordinator.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::BoxError;

use crate::protocol::{ProtocolClient, State, TransactionAdmin as _};
use crate::sink::recovery::TransactionNaming;
use crate::sink::slot::{Describe, ProducerIdentity};

/// Learns a producer's identity from the coordinator of its id, and sees to it that the marker's group has a coordinator: the
/// client that finds none does not ask again for as long as nothing else happens.
#[derive(Debug)]
pub(in crate::sink) struct ByCoordinator(pub(in crate::sink) ProtocolClient);

impl Describe for ByCoordinator {
    async fn describe(&self, id: &str) -> Result<Option<ProducerIdentity>, BoxError> {
        let within = Duration::from_secs(30);
        self.0.offsets_now(&TransactionNaming::marker_group(id), &BTreeMap::new(), within).await?;
        let Some(told) = self.0.describe(&[id], within).await?.remove(id).flatten() else { return Ok(None) };
        match told.state {
            State::Empty => Ok(Some(ProducerIdentity {
                producer_id: told.identity.producer_id,
                epoch: told.identity.epoch,
            })),
            state => Err(format!("it has a transaction already, {state:?}").into()),
        }
    }
}
