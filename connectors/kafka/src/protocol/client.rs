//! Whom a request goes to, and how often.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::address::Address;
use super::api::Api;
use super::config::{ConfigError, ProtocolConfig};
use super::connect::Connecting;
use super::error::ProtocolError;
use super::known::{CoordinatorOf, Known};
use super::pool::Pool;
use super::retry::Call;

/// Speaks Kafka's protocol for what librdkafka does not ask brokers: the state of transactions, their end from another
/// connection, the producers of a partition.
///
/// Each call has a deadline over all its attempts, `within`; requests that only read are tried again within it, at whoever
/// is responsible by then. A request that changes something is tried again only where it is certain that it was not carried
/// out; where its answer is lost, the error is [`ProtocolError::OutcomeUnknown`].
///
/// # Cancel safety
/// Dropping the future of a call closes the connection that it used; nothing else is hurt, and no later call can see the
/// answer. A request that changes something may have been carried out.
///
/// Clones share connections and what is known. They close when the last clone is dropped, or by
/// [`close`](ProtocolClient::close).
#[derive(Clone)]
pub struct ProtocolClient(Arc<Shared>);

struct Shared {
    connecting: Connecting,
    pool: Pool,
    known: Mutex<Known>,
    patience: Duration,
}

impl std::fmt::Debug for ProtocolClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProtocolClient").field("known", &self.0.known).finish_non_exhaustive()
    }
}

impl ProtocolClient {
    /// Makes a client; reads the files with certificates, and connects to nobody yet.
    ///
    /// # Errors
    /// [`ConfigError::Unusable`] for files that cannot be read or hold no certificate or key.
    pub fn new(config: ProtocolConfig) -> Result<Self, ConfigError> {
        let connecting = Connecting::new(&config)?;
        Ok(Self::connecting_by(connecting, config))
    }

    pub(super) fn connecting_by(connecting: Connecting, config: ProtocolConfig) -> Self {
        let known = Mutex::new(Known::new(config.bootstrap));
        Self(Arc::new(Shared { connecting, pool: Pool::default(), known, patience: config.patience }))
    }

    /// Closes the connections that nothing runs on. The client can go on to be used: it makes new ones.
    pub fn close(&self) {
        self.0.pool.clear();
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is one insertion or removal.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whoever answers first: what every broker knows.
    pub(super) async fn ask_any<A: Api>(
        &self,
        request: &A,
        call: &Call,
    ) -> Result<A::Response, ProtocolError> {
        let candidates = self.known().candidates();
        let mut last = None;
        for broker in &candidates {
            match self.ask(broker, request, call).await {
                Ok(answer) => {
                    self.known().note_answering(broker);
                    return Ok(answer);
                }
                Err(error) if error.is_of_a_lost_broker() && Instant::now() < call.until => {
                    last = Some(error)
                }
                Err(error) => return Err(error),
            }
        }
        // There is one at least, from the configuration.
        Err(last.unwrap_or(ProtocolError::UnknownBroker { broker_id: -1 }))
    }

    /// Asks one broker of the cluster, by number.
    pub(super) async fn ask_broker<A: Api>(
        &self,
        broker_id: i32,
        request: &A,
        call: &Call,
    ) -> Result<A::Response, ProtocolError> {
        let broker = self.locate(broker_id, call).await?;
        self.ask(&broker, request, call).await
    }

    async fn locate(&self, broker_id: i32, call: &Call) -> Result<Address, ProtocolError> {
        if let Some(broker) = self.known().broker(broker_id) {
            return Ok(broker);
        }
        self.read_cluster(&[], call).await?;
        self.known().broker(broker_id).ok_or(ProtocolError::UnknownBroker { broker_id })
    }

    /// Asks the coordinator of a key, and goes on until it says something final; `code_of` finds the error code.
    pub(super) async fn ask_coordinator<A: Api>(
        &self,
        (of, key): (CoordinatorOf, &str),
        request: &A,
        code_of: fn(&A::Response) -> i16,
        call: &mut Call,
    ) -> Result<A::Response, ProtocolError> {
        loop {
            let error = match self.ask_coordinator_once((of, key), request, code_of, call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.doubt_coordinator(of, key, &error);
            call.pause(error).await?;
        }
    }

    async fn ask_coordinator_once<A: Api>(
        &self,
        (of, key): (CoordinatorOf, &str),
        request: &A,
        code_of: fn(&A::Response) -> i16,
        call: &Call,
    ) -> Result<A::Response, ProtocolError> {
        let coordinator = self.locate_coordinator(of, key, call).await?;
        let answer = self.ask_broker(coordinator, request, call).await?;
        super::error::accepted(&call.told, code_of(&answer))?;
        Ok(answer)
    }

    /// Forgets who the coordinator is, if an error may mean that it moved.
    pub(super) fn doubt_coordinator(&self, of: CoordinatorOf, key: &str, error: &ProtocolError) {
        let has_moved = match error {
            ProtocolError::Refused { code, .. } => code.is_of_a_moved_coordinator(),
            ProtocolError::OutcomeUnknown { .. } | ProtocolError::UnknownBroker { .. } => true,
            error => error.is_of_a_lost_broker(),
        };
        if has_moved {
            self.known().forget_coordinator(of, key);
        }
    }

    async fn ask<A: Api>(
        &self,
        broker: &Address,
        request: &A,
        call: &Call,
    ) -> Result<A::Response, ProtocolError> {
        let answered = self.ask_connected(broker, request, call).await;
        if let Err(error) = &answered
            && error.is_of_a_lost_broker()
        {
            self.known().forget_broker(broker);
        }
        answered
    }

    async fn ask_connected<A: Api>(
        &self,
        broker: &Address,
        request: &A,
        call: &Call,
    ) -> Result<A::Response, ProtocolError> {
        let mut connection = self.connected(broker, call).await?;
        let answer = connection.call(request, &call.told, self.attempt(call)).await?;
        // Behind an error, or in a future that is dropped, it is not put back: it closes.
        self.0.pool.put(connection);
        Ok(answer)
    }

    /// Returns a connection, an idle one or a new one.
    pub(super) async fn connected(
        &self,
        broker: &Address,
        call: &Call,
    ) -> Result<super::connection::Connection, ProtocolError> {
        match self.0.pool.take(broker) {
            Some(idle) => Ok(idle),
            None => self.0.connecting.connect(broker, self.attempt(call)).await,
        }
    }

    pub(super) fn put_back(&self, connection: super::connection::Connection) {
        self.0.pool.put(connection);
    }

    /// Returns the end of one attempt that begins now.
    fn attempt(&self, call: &Call) -> Instant {
        // A patience without an end ends with the call.
        Instant::now().checked_add(self.0.patience).map_or(call.until, |end| end.min(call.until))
    }
}
