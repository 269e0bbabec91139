//! Describing, listing, ending and fencing transactions.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::describe_transactions_response::TransactionState as Described;
use kafka_protocol::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, EndTxnRequest, InitProducerIdRequest,
    InitProducerIdResponse, ListTransactionsRequest, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::{Request as _, StrBytes};
use levada_core::Timestamp;
use tokio::time::Instant;

use super::admin::Admin;
use super::api;
use super::backoff::Tries;
use super::coordinator::Kind;
use super::error::{ErrorCode, ProtocolError};
use crate::sink::recovery::{DescribedTransaction, Description, Partitions, TransactionState};

/// From version 5 on, a commit raises the epoch, and another protocol begins. The transactions here are written by a client
/// that does not speak it.
const END_AT_MOST: i16 = 4;
/// The broker does not know the transactional id, or no longer.
const NOT_FOUND: i16 = 105;
/// No producer id.
const NONE: ProducerId = ProducerId(-1);

/// A transaction as a broker lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTransaction {
    /// Its transactional id.
    pub transactional_id: String,
    /// Its producer id.
    pub producer_id: i64,
    /// Its state.
    pub state: TransactionState,
}

/// What an id has after it was initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initialised {
    /// Its producer id.
    pub producer_id: i64,
    /// Its epoch: whoever has an earlier one is fenced.
    pub epoch: i16,
}

fn named(id: &str) -> TransactionalId {
    TransactionalId(StrBytes::from_string(id.to_owned()))
}

impl Admin {
    /// Asks the coordinator of an id what became of its newest transaction. Changes nothing.
    ///
    /// # Errors
    /// The coordinator is not found or does not answer within the deadline, or refuses.
    pub async fn describe(&self, id: &str, within: Duration) -> Result<Description, ProtocolError> {
        let mut tries = Tries::new(api::name(DescribeTransactionsRequest::KEY), within);
        loop {
            match self.describe_once(id, tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn describe_once(&self, id: &str, until: Instant) -> Result<Description, ProtocolError> {
        let request = DescribeTransactionsRequest::default().with_transactional_ids(vec![named(id)]);
        let asked = self.ask_coordinator(Kind::Transaction, id, &request, refusal, until).await?;
        match asked.transaction_states.into_iter().find(|state| &**state.transactional_id == id) {
            None => Err(ProtocolError::Silent {
                address: self.coordinator(Kind::Transaction, id, until).await?,
                api: api::name(DescribeTransactionsRequest::KEY),
                subject: id.to_owned(),
            }),
            Some(state) if state.error_code == NOT_FOUND => Ok(Description::NotFound),
            Some(state) => Ok(Description::Found(described(state))),
        }
    }

    /// Sends `EndTxn` once and returns the code of the answer: see [`answer`](crate::sink::recovery::answer).
    ///
    /// Harmless to repeat as long as each transaction has an epoch for itself: a commit of what is committed succeeds.
    ///
    /// # Errors
    /// There is no answer; [`ProtocolError::is_outcome_unknown`] says whether the request may have arrived.
    ///
    /// # Cancel safety
    /// After a drop the transaction may be ended or not.
    pub async fn end_transaction(
        &self,
        id: &str,
        producer: Initialised,
        commit: bool,
        within: Duration,
    ) -> Result<ErrorCode, ProtocolError> {
        let until = Instant::now() + within;
        let request = EndTxnRequest::default()
            .with_transactional_id(named(id))
            .with_producer_id(ProducerId(producer.producer_id))
            .with_producer_epoch(producer.epoch)
            .with_committed(commit);
        let coordinator = self.coordinator(Kind::Transaction, id, until).await?;
        let asked = self.ask_once(&coordinator, &request, END_AT_MOST, until).await;
        let code = asked.as_ref().map_or(0, |answer| answer.error_code);
        if asked.is_err() || ErrorCode(code).is_about_the_coordinator() {
            self.forget_coordinator(Kind::Transaction, id);
        }
        asked.map(|answer| ErrorCode(answer.error_code))
    }

    /// Initialises an id: whatever is open under it is aborted, and whoever writes under it is fenced. Repeated until the
    /// abort is through.
    ///
    /// # Errors
    /// It is not through within the deadline, or the coordinator refuses.
    pub async fn initialise(
        &self,
        id: &str,
        timeout: Duration,
        within: Duration,
    ) -> Result<Initialised, ProtocolError> {
        let mut tries = Tries::new(api::name(InitProducerIdRequest::KEY), within);
        loop {
            match self.initialise_once(id, timeout, tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn initialise_once(
        &self,
        id: &str,
        timeout: Duration,
        until: Instant,
    ) -> Result<Initialised, ProtocolError> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(named(id)))
            .with_transaction_timeout_ms(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX))
            .with_producer_id(NONE)
            .with_producer_epoch(-1);
        let code = |answer: &InitProducerIdResponse| Some(answer.error_code);
        let answer = self.ask_coordinator(Kind::Transaction, id, &request, code, until).await?;
        Ok(Initialised { producer_id: answer.producer_id.0, epoch: answer.producer_epoch })
    }

    /// Lists the transactions whose id `is_wanted`, as *every* broker tells of those that it coordinates.
    ///
    /// # Errors
    /// A broker does not answer within the deadline: a part of the list is no list.
    pub async fn list(
        &self,
        is_wanted: impl Fn(&str) -> bool + Sync,
        within: Duration,
    ) -> Result<Vec<ListedTransaction>, ProtocolError> {
        let mut tries = Tries::new(api::name(ListTransactionsRequest::KEY), within);
        loop {
            match self.list_once(&is_wanted, tries.until()).await {
                Err(error) => tries.again(error).await?,
                done => return done,
            }
        }
    }

    async fn list_once(
        &self,
        is_wanted: &(impl Fn(&str) -> bool + Sync),
        until: Instant,
    ) -> Result<Vec<ListedTransaction>, ProtocolError> {
        let request = ListTransactionsRequest::default().with_duration_filter(-1);
        let mut listed = BTreeMap::new();
        for broker in self.metadata(&[], until).await?.brokers {
            let answer = self.ask_once(&broker.address, &request, i16::MAX, until).await?;
            if answer.error_code != 0 {
                let (api, code) = (api::name(ListTransactionsRequest::KEY), ErrorCode(answer.error_code));
                let (address, subject) = (broker.address, "all ids".to_owned());
                return Err(ProtocolError::Refused { address, api, subject, code });
            }
            for state in answer.transaction_states {
                if is_wanted(&state.transactional_id) {
                    let transactional_id = state.transactional_id.to_string();
                    let (producer_id, state) =
                        (state.producer_id.0, TransactionState::named(&state.transaction_state));
                    let entry = ListedTransaction { transactional_id, producer_id, state };
                    listed.insert(entry.transactional_id.clone(), entry);
                }
            }
        }
        Ok(listed.into_values().collect())
    }
}

/// Finds a refusal in a description; that an id is not known is none.
fn refusal(answer: &DescribeTransactionsResponse) -> Option<i16> {
    answer.transaction_states.first().map(|state| state.error_code).filter(|code| *code != NOT_FOUND)
}

fn described(state: Described) -> DescribedTransaction {
    let mut partitions = Partitions::new();
    for topic in state.topics {
        partitions.entry(topic.topic.0.to_string()).or_default().extend(topic.partitions);
    }
    DescribedTransaction {
        state: TransactionState::named(&state.transaction_state),
        producer_id: state.producer_id.0,
        epoch: state.producer_epoch,
        start: (state.transaction_start_time_ms >= 0).then_some(Timestamp(state.transaction_start_time_ms)),
        timeout: Duration::from_millis(u64::try_from(state.transaction_timeout_ms).unwrap_or(0)),
        partitions,
    }
}
