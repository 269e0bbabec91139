//! Losing the connection and coming back.

use std::time::Duration;

use levada_core::SinkError;
use tracing::{info, warn};

use super::backoff::Pauses;
use super::error::Failure;
use super::failpoint::fail_point;
use super::session::Session;
use super::stats::Health;
use super::writer::{Outage, Writer};

impl Writer {
    /// Notes that the connection is of no use any more. The first time in a row is logged.
    pub(crate) fn lost(&mut self, failure: &Failure) {
        self.session = None;
        let is_first = !matches!(&*self.health.borrow(), Health::Degraded { .. });
        if is_first {
            warn!(error = %failure.cause, table = %self.config.table, "degraded: the server is away, trying again until it is back");
        }
        self.health.send_replace(Health::Degraded { reason: failure.cause.to_string() });
    }

    /// Makes sure that there is a connection, however long that takes; tells whether it is a new one.
    ///
    /// # Errors
    /// What waiting does not change: privileges, a database that does not exist. With [`Outage::Report`] also that the
    /// server is away.
    pub(crate) async fn connected(&mut self) -> Result<bool, SinkError> {
        if self.session.as_ref().is_some_and(|session| !session.client.is_closed()) {
            return Ok(false);
        }
        self.session = None;
        let mut pauses = Pauses::new(Duration::from_millis(50), self.config.reconnect_pause);
        loop {
            fail_point!("pg::reconnect");
            let connecting =
                Session::connect(&self.config.connection, self.config.limits(), &self.application_name);
            match connecting.await {
                Ok(session) => {
                    self.session = Some(session);
                    self.stats.reconnects += 1;
                    return Ok(true);
                }
                Err(failure) if failure.class.is_retriable() => {
                    self.lost(&failure);
                    if self.outage == Outage::Report {
                        return Err(failure.during("connecting again"));
                    }
                    // At once is tried once only; a server that takes connections and drops them is not hammered.
                    pauses.next().await;
                }
                Err(failure) => return Err(failure.during("connecting again")),
            }
        }
    }

    /// Notes that the server is back.
    pub(crate) fn recovered(&mut self) {
        if matches!(&*self.health.borrow(), Health::Degraded { .. }) {
            info!(table = %self.config.table, "recovered");
        }
        self.health.send_replace(Health::Connected);
    }
}
