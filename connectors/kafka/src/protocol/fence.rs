//! InitProducerId: a new epoch for a transactional id, which ends whatever is open under an older one.

use std::time::Duration;

use kafka_protocol::messages::{InitProducerIdRequest, ProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::error::ProtocolError;
use super::known::CoordinatorOf;
use super::retry::Call;
use super::transaction::Identity;

impl ProtocolClient {
    pub(super) async fn init_producer_id(
        &self,
        id: &str,
        timeout: Duration,
        within: Duration,
    ) -> Result<Identity, ProtocolError> {
        // Above what the protocol can say, the brokers' limit refuses it.
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(id.to_owned()))))
            .with_transaction_timeout_ms(timeout_ms)
            // Whoever holds the id now is not us.
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let mut call = Call::new(format!("InitProducerId of {id}, timeout {timeout:?}"), within);
        let of = (CoordinatorOf::Transaction, id);
        // While what was open is being aborted, the answer is CONCURRENT_TRANSACTIONS.
        let answer = self.ask_coordinator(of, &request, |answer| answer.error_code, &mut call).await?;
        Ok(Identity { producer_id: answer.producer_id.0, epoch: answer.producer_epoch })
    }
}
