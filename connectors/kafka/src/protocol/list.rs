//! ListTransactions, at every broker: each lists those that it coordinates.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::ListTransactionsRequest;
use kafka_protocol::messages::list_transactions_response::ListTransactionsResponse;
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::cluster::Leader;
use super::error::{ProtocolError, accepted};
use super::retry::Call;
use super::transaction::{Listed, State};

/// The topic whose leaders are the coordinators of transactions.
const COORDINATION: &str = "__transaction_state";

/// Who coordinated what, at one moment. Two equal ones mean that nothing moved in between, because each move has an epoch.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    brokers: Vec<i32>,
    /// Empty where there were no transactions yet, or where we may not see it.
    coordination: BTreeMap<i32, Leader>,
}

impl ProtocolClient {
    pub(super) async fn list_all(
        &self,
        states: &[State],
        within: Duration,
    ) -> Result<Vec<Listed>, ProtocolError> {
        let mut call = Call::new("ListTransactions", within);
        if let Some(state) = states.iter().find(|state| state.name().is_none()) {
            let reason = format!("the protocol has no name for the state {state:?}");
            return Err(ProtocolError::Unencodable { request: call.told, reason });
        }
        loop {
            match self.list_once(states, &call).await {
                Ok(listed) => return Ok(listed),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    /// Goes round once. What moved from a broker that is still to be asked to one that was asked already would be missed, so
    /// a round counts only if nothing moved.
    async fn list_once(&self, states: &[State], call: &Call) -> Result<Vec<Listed>, ProtocolError> {
        let filters = states.iter().filter_map(|state| state.name()).map(StrBytes::from_static_str);
        let request = ListTransactionsRequest::default().with_state_filters(filters.collect());
        let before = self.standing(call).await?;
        let mut listed = Vec::new();
        for &broker in &before.brokers {
            let answer = self.ask_broker(broker, &request, call).await?;
            listed.extend(self.listed(answer, call)?);
        }
        if self.standing(call).await? != before {
            return Err(ProtocolError::Moving { request: call.told.clone() });
        }
        listed.sort();
        listed.dedup();
        Ok(listed)
    }

    fn listed(&self, answer: ListTransactionsResponse, call: &Call) -> Result<Vec<Listed>, ProtocolError> {
        accepted(&call.told, answer.error_code)?;
        if let [state, ..] = &answer.unknown_state_filters[..] {
            return Err(self.malformed(call, format!("the broker knows no state {state}")));
        }
        let listed = answer.transaction_states.into_iter().map(|told| Listed {
            transactional_id: told.transactional_id.to_string(),
            producer_id: told.producer_id.0,
            state: State::named(&told.transaction_state),
        });
        Ok(listed.collect())
    }

    async fn standing(&self, call: &Call) -> Result<Standing, ProtocolError> {
        let mut told = self.read_cluster(&[COORDINATION], call).await?;
        let brokers = told.cluster.brokers.keys().copied().collect();
        let coordination =
            told.cluster.topics.remove(COORDINATION).map(|topic| topic.partitions).unwrap_or_default();
        // What nobody coordinates now, nobody lists.
        for (&partition, leader) in &coordination {
            if leader.broker.is_none() {
                return Err(ProtocolError::NoLeader { topic: COORDINATION.to_owned(), partition });
            }
        }
        Ok(Standing { brokers, coordination })
    }
}
