//! What can be chosen before a pooler starts.

use std::collections::BTreeMap;

use super::PgBouncer;
use super::start::start;
use crate::{Error, Postgres};

/// When a pooler takes a connection to the server away from its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolMode {
    /// When the client leaves: it may rely on the state of its session.
    Session,
    /// At the end of each transaction: the next one may run in another session.
    Transaction,
    /// At the end of each statement: transactions of several statements are refused.
    Statement,
}

impl PoolMode {
    /// Returns the name that PgBouncer uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
            PoolMode::Statement => "statement",
        }
    }
}

/// Chooses how a pooler starts; made by [`PgBouncer::builder`].
#[derive(Clone, Debug)]
pub struct PgBouncerBuilder {
    /// The address of the server behind it.
    pub(super) server: String,
    /// Settings that replace ours.
    pub(super) settings: BTreeMap<String, String>,
}

impl PgBouncerBuilder {
    pub(super) fn new(postgres: &Postgres) -> PgBouncerBuilder {
        PgBouncerBuilder { server: postgres.address(), settings: BTreeMap::new() }
    }

    /// Sets when a client loses its connection to the server: [`PoolMode::Transaction`], unless set.
    #[must_use]
    pub fn pool_mode(self, mode: PoolMode) -> PgBouncerBuilder {
        self.setting("pool_mode", mode.name())
    }

    /// Sets how many connections to the server there are at most for each user and database: 20, unless set. Who finds none
    /// waits.
    #[must_use]
    pub fn pool_size(self, connections: usize) -> PgBouncerBuilder {
        self.setting("default_pool_size", connections.to_string())
    }

    /// Sets a setting (a line of the section `pgbouncer` of `pgbouncer.ini`); replaces the default of PgBouncer or of this
    /// crate. One that the installed version does not know fails the start.
    ///
    /// The address, the port and the files are this crate's own: they cannot be replaced.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> PgBouncerBuilder {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Starts the pooler and returns when it accepts connections. It looks for the server only when a client comes.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when PgBouncer is not installed; otherwise what went wrong, with the end of its log.
    pub fn start(self) -> Result<PgBouncer, Error> {
        start(&self)
    }
}
