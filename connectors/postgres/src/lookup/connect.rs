//! The connections of a lookup, as the pool makes them and takes them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use levada_core::ErrorClass;
use tokio::time::timeout;
use tokio_postgres::{CancelToken, Config, Statement};

use crate::sink::error::{Failure, ServerError};
use crate::sink::session::{Limits, Session, answered};

use super::cancel::cancel;
use super::config::PostgresLookupConfig;
use super::plan::Plan;
use super::sql;
use super::stats::Counters;

/// How long it may take to tell the server that nobody waits.
const CANCEL_WITHIN: Duration = Duration::from_secs(10);

/// Returns what the server enforces, whoever is forgotten here.
pub(crate) fn limits(config: &PostgresLookupConfig) -> Limits {
    Limits {
        statement_timeout: config.statement_timeout.unwrap_or(config.timeout),
        lock_timeout: Duration::ZERO,
        idle_in_transaction_session_timeout: config.timeout,
    }
}

/// Connects with the session's limits, for reading alone.
pub(crate) async fn session(config: &PostgresLookupConfig) -> Result<Session, Failure> {
    let session = Session::connect(&config.connection, limits(config), &config.application_name).await?;
    answered(session.patience, session.client.batch_execute(sql::READ_ONLY)).await?;
    Ok(session)
}

/// A connection with its statements.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) one: Statement,
    pub(crate) many: Statement,
    /// Whether its statements are of no use any more.
    pub(crate) is_stale: AtomicBool,
}

/// Makes connections.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) config: PostgresLookupConfig,
    pub(crate) plan: Arc<Plan>,
    pub(crate) counters: Arc<Counters>,
}

impl Manager for Connector {
    type Type = Connection;
    type Error = Failure;

    async fn create(&self) -> Result<Connection, Failure> {
        let mut session = session(&self.config).await?;
        // Preparing waits for whoever has locked the table.
        let guard = CancelOnDrop(Some((session.client.cancel_token(), self.config.connection.clone())));
        let one = session.prepare(&self.plan.one).await?;
        let many = session.prepare(&self.plan.many).await?;
        guard.disarm();
        self.counters.connected.fetch_add(1, Relaxed);
        Ok(Connection { session, one, many, is_stale: AtomicBool::new(false) })
    }

    /// Asks whether it lives: it comes from a pause, or from a call that was given up.
    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Failure> {
        match connection.session.client.is_closed() || connection.is_stale.load(Relaxed) {
            true => Err(RecycleError::message("the connection is closed or its statements are outdated")),
            false => Ok(connection.session.client.batch_execute("").await.map_err(Failure::from)?),
        }
    }
}

/// Tells the server that nobody waits any more, if it is dropped armed. A server that waits for a lock does not see that
/// its client is gone.
struct CancelOnDrop(Option<(CancelToken, Config)>);

impl CancelOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((token, config)) = self.0.take() else { return };
        // The statement's own limit is there for a server that does not hear it.
        tokio::spawn(timeout(CANCEL_WITHIN, async move { cancel(&token, &config).await }));
    }
}

/// Makes the failure of a step that took too long.
pub(crate) fn too_slow(step: &str, limit: Duration) -> Failure {
    let message = format!("{step} took longer than {limit:?}");
    Failure { class: ErrorClass::Reconnect, code: None, cause: Box::new(ServerError::without_code(message)) }
}
