//! The client as the sink sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::admin::TransactionAdmin;
use super::client::ProtocolClient;
use super::error::ProtocolError;
use super::known::CoordinatorOf;
use super::transaction::{Described, Ending, Identity, Listed, State, TransactionKey};

impl TransactionAdmin for ProtocolClient {
    async fn find_coordinator(&self, id: &str, within: Duration) -> Result<i32, ProtocolError> {
        self.find_freshly(CoordinatorOf::Transaction, id, within).await
    }

    async fn describe(
        &self,
        ids: &[&str],
        within: Duration,
    ) -> Result<BTreeMap<String, Option<Described>>, ProtocolError> {
        self.describe_all(ids, within).await
    }

    async fn list(&self, states: &[State], within: Duration) -> Result<Vec<Listed>, ProtocolError> {
        self.list_all(states, within).await
    }

    async fn end(
        &self,
        transaction: TransactionKey<'_>,
        ending: Ending,
        within: Duration,
    ) -> Result<(), ProtocolError> {
        self.end_transaction(transaction, ending, within).await
    }

    async fn fence(&self, id: &str, timeout: Duration, within: Duration) -> Result<Identity, ProtocolError> {
        self.init_producer_id(id, timeout, within).await
    }
}
