//! Connections that wait for their next request.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::address::Address;
use super::connection::Connection;

/// More would wait for nobody: few requests run at once.
const MOST_IDLE: usize = 2;
/// Long before a broker ends them (`connections.max.idle.ms`, 10 minutes): a request on a connection that the broker has
/// just ended would be one with an unknown outcome.
const LONGEST_IDLE: Duration = Duration::from_secs(60);

/// Idle connections by broker.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<HashMap<Address, Vec<Connection>>>);

impl Pool {
    /// Takes one that still stands, as far as can be seen from here.
    pub(super) fn take(&self, broker: &Address) -> Option<Connection> {
        let now = Instant::now();
        let mut idle = self.idle();
        let waiting = idle.get_mut(broker)?;
        waiting.retain(|connection| now.duration_since(connection.idle_since()) < LONGEST_IDLE);
        while let Some(connection) = waiting.pop() {
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    pub(super) fn put(&self, connection: Connection) {
        let mut idle = self.idle();
        let waiting = idle.entry(connection.broker().clone()).or_default();
        if waiting.len() < MOST_IDLE {
            waiting.push(connection);
        }
    }

    pub(super) fn clear(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Address, Vec<Connection>>> {
        // Whole connections go in and out: a panic leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
