//! DescribeTransactions, at the coordinators.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::{DescribeTransactionsRequest, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use levada_core::Timestamp;

use super::client::ProtocolClient;
use super::code::ErrorCode;
use super::error::{ProtocolError, accepted};
use super::known::CoordinatorOf;
use super::retry::Call;
use super::transaction::{Described, Identity, State};

type Descriptions = BTreeMap<String, Option<Described>>;

impl ProtocolClient {
    /// Asks until there is an answer for each id. Those that were answered are not asked again.
    pub(super) async fn describe_all(
        &self,
        ids: &[&str],
        within: Duration,
    ) -> Result<Descriptions, ProtocolError> {
        let mut call = Call::new(format!("DescribeTransactions of {}", ids.join(", ")), within);
        let mut described = Descriptions::new();
        loop {
            let left: Vec<&str> = ids.iter().copied().filter(|id| !described.contains_key(*id)).collect();
            if left.is_empty() {
                return Ok(described);
            }
            if let Err(error) = self.describe_left(&left, &call, &mut described).await {
                left.iter().for_each(|id| self.doubt_coordinator(CoordinatorOf::Transaction, id, &error));
                call.pause(error).await?;
            }
        }
    }

    async fn describe_left(
        &self,
        ids: &[&str],
        call: &Call,
        described: &mut Descriptions,
    ) -> Result<(), ProtocolError> {
        let coordinators = self.locate_coordinators(CoordinatorOf::Transaction, ids, call).await?;
        for (coordinator, ids) in coordinators {
            let wanted = ids.iter().map(|id| TransactionalId(StrBytes::from_string((*id).to_owned())));
            let request = DescribeTransactionsRequest::default().with_transactional_ids(wanted.collect());
            let answer = self.ask_broker(coordinator, &request, call).await?;
            let told = answer.transaction_states.into_iter();
            let told: BTreeMap<String, TransactionState> =
                told.map(|state| (state.transactional_id.to_string(), state)).collect();
            for id in ids {
                let state =
                    told.get(id).ok_or_else(|| self.malformed(call, format!("nothing is said of {id}")))?;
                described.insert(id.to_owned(), description(state, call)?);
            }
        }
        Ok(())
    }
}

fn description(told: &TransactionState, call: &Call) -> Result<Option<Described>, ProtocolError> {
    if ErrorCode::of(told.error_code) == Some(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND) {
        return Ok(None);
    }
    accepted(&call.told, told.error_code)?;
    let start = told.transaction_start_time_ms;
    let of_topic = |told: &TopicData| (told.topic.to_string(), told.partitions.iter().copied().collect());
    Ok(Some(Described {
        state: State::named(&told.transaction_state),
        identity: Identity { producer_id: told.producer_id.0, epoch: told.producer_epoch },
        start: (start >= 0).then_some(Timestamp(start)),
        // Of a negative one nothing is left.
        timeout: Duration::from_millis(u64::try_from(told.transaction_timeout_ms).unwrap_or(0)),
        partitions: told.topics.iter().map(of_topic).collect(),
    }))
}
