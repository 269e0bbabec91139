//! What a transactional sink needs of a cluster, and nothing else of this client.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::error::ProtocolError;
use super::transaction::{Described, Ending, Identity, Listed, State, TransactionKey};

/// Resolves transactions that were prepared before, by this process or another one.
///
/// A trait, so that preparing in the broker (KIP-939) can take the place of `end` once brokers offer it: what is prepared is
/// a producer id and an epoch there too. Each call ends within `within`, by the monotonic clock.
pub trait TransactionAdmin: fmt::Debug + Send + Sync {
    /// Returns the number of the broker that decides about an id.
    ///
    /// # Errors
    /// [`ProtocolError`].
    fn find_coordinator(
        &self,
        transactional_id: &str,
        within: Duration,
    ) -> impl Future<Output = Result<i32, ProtocolError>> + Send;

    /// Asks for the state of each id. Changes nothing. An id that its coordinator does not know has `None`: it never
    /// existed, or has expired.
    ///
    /// # Errors
    /// [`ProtocolError`]; there is an answer for every id or none at all.
    fn describe(
        &self,
        transactional_ids: &[&str],
        within: Duration,
    ) -> impl Future<Output = Result<BTreeMap<String, Option<Described>>, ProtocolError>> + Send;

    /// Lists the ids in these states, in all states for an empty slice, of the whole cluster: every broker is asked, and
    /// asked again when coordinators moved meanwhile. Ids that we may not describe are left out by the brokers.
    ///
    /// # Errors
    /// [`ProtocolError`]; also when a single broker could not be asked.
    fn list(
        &self,
        states: &[State],
        within: Duration,
    ) -> impl Future<Output = Result<Vec<Listed>, ProtocolError>> + Send;

    /// Commits or aborts a transaction, on a connection of nobody's. Done before the same way is done.
    ///
    /// Behind a success the decision is durable. Readers see it when the markers are written, a moment later.
    ///
    /// # Errors
    /// [`ProtocolError::Refused`] with `PRODUCER_FENCED` (`INVALID_PRODUCER_EPOCH` from old brokers), `INVALID_TXN_STATE` or
    /// `INVALID_PRODUCER_ID_MAPPING` where there is no such transaction to end; with
    /// `TRANSACTIONAL_ID_AUTHORIZATION_FAILED` where it waits still and we may not.
    /// [`ProtocolError::OutcomeUnknown`] where the answer is lost, and [`ProtocolError::Deadline`] where the coordinator has
    /// not said that it is decided: either way it may be. Ask by [`describe`](TransactionAdmin::describe), or send the same
    /// again.
    fn end(
        &self,
        transaction: TransactionKey<'_>,
        ending: Ending,
        within: Duration,
    ) -> impl Future<Output = Result<(), ProtocolError>> + Send;

    /// Initialises an id anew: whatever is open under it is aborted, and whoever used it before is refused from now on.
    /// Never for an id whose transaction waits to be committed.
    ///
    /// `timeout` is the time-out of a transaction that would follow.
    ///
    /// # Errors
    /// As [`end`](TransactionAdmin::end); `INVALID_TRANSACTION_TIMEOUT` where `timeout` is above the brokers'
    /// `transaction.max.timeout.ms`.
    fn fence(
        &self,
        transactional_id: &str,
        timeout: Duration,
        within: Duration,
    ) -> impl Future<Output = Result<Identity, ProtocolError>> + Send;
}
