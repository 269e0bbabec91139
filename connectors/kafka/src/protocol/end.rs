//! EndTxn: the commit or abort of a transaction that somebody else has written.

use std::time::Duration;

use kafka_protocol::messages::{EndTxnRequest, ProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;

use super::client::ProtocolClient;
use super::error::ProtocolError;
use super::known::CoordinatorOf;
use super::retry::Call;
use super::transaction::{Ending, TransactionKey};

impl ProtocolClient {
    pub(super) async fn end_transaction(
        &self,
        transaction: TransactionKey<'_>,
        ending: Ending,
        within: Duration,
    ) -> Result<(), ProtocolError> {
        let id = transaction.transactional_id;
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(StrBytes::from_string(id.to_owned())))
            .with_producer_id(ProducerId(transaction.producer_id))
            .with_producer_epoch(transaction.epoch)
            .with_committed(ending == Ending::Commit);
        let mut call = Call::new(format!("EndTxn, {ending} of {transaction}"), within);
        let of = (CoordinatorOf::Transaction, id);
        self.ask_coordinator(of, &request, |answer| answer.error_code, &mut call).await?;
        Ok(())
    }
}
