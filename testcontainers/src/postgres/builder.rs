//! What can be chosen before a server starts.

use std::collections::BTreeMap;

use super::Postgres;
use super::start::start;
use crate::Error;

/// Chooses how a Postgres server starts; made by [`Postgres::builder`].
#[derive(Clone, Debug)]
pub struct PostgresBuilder {
    /// Server settings that replace ours.
    pub(super) settings: BTreeMap<String, String>,
}

impl PostgresBuilder {
    pub(super) fn new() -> PostgresBuilder {
        PostgresBuilder { settings: BTreeMap::new() }
    }

    /// Sets a server setting (a line of `postgresql.conf`); replaces the default of Postgres or of this crate.
    ///
    /// The address, the port and where sockets and shared memory live are this crate's own: they cannot be replaced.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> PostgresBuilder {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Starts the server and returns when it accepts connections.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when PostgreSQL is not installed; otherwise what went wrong, with the end of the server's log.
    pub fn start(self) -> Result<Postgres, Error> {
        start(&self)
    }
}
