//! The server that all tests share, and that nobody may hurt: its handle has no faults.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::handle::{Postgres, SERVER};
use super::{Database, psql};
use crate::Error;
use crate::exported;
use crate::logs::ShownLog;
use crate::provider::Provider;

/// A use of the shared server; made by [`Postgres::shared`]. The server outlives it.
#[derive(Clone, Debug)]
pub struct SharedPostgres {
    url: String,
    /// The server's log from the moment this handle was made; `None` when the exported address came without one.
    /// Clones of the handle share it, so that a failing test shows it once.
    log: Option<Arc<ShownLog>>,
}

impl SharedPostgres {
    /// Returns the URL of the server's first database, with user and password.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns what the server has logged since this handle was made; empty when its log is not known here.
    #[must_use]
    pub fn logs(&self) -> String {
        self.log.as_ref().map(|log| log.0.read()).unwrap_or_default()
    }

    /// Creates an empty database; it is dropped with the returned handle.
    ///
    /// # Errors
    ///
    /// What `CREATE DATABASE` answered.
    pub fn database(&self) -> Result<Database, Error> {
        Database::create(self.clone())
    }

    /// Runs SQL through `psql`; see [`Postgres::psql`].
    ///
    /// # Errors
    ///
    /// As [`Postgres::psql`].
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        psql::psql(&self.url, sql)
    }
}

pub(super) fn shared() -> Result<SharedPostgres, Error> {
    if let Some(url) = exported::address(exported::POSTGRES_URL)? {
        let log =
            std::env::var_os(exported::POSTGRES_LOG).map(|path| ShownLog::from_now(SERVER, Path::new(&path)));
        return Ok(SharedPostgres { url, log });
    }
    if Provider::chosen()? == Provider::External {
        return Err(exported::missing(exported::POSTGRES_URL));
    }
    // Never dropped: the reaper ends the server after the last test.
    static OURS: OnceLock<Result<Postgres, Error>> = OnceLock::new();
    match OURS.get_or_init(Postgres::start) {
        Ok(postgres) => Ok(SharedPostgres {
            url: postgres.url().to_owned(),
            log: Some(ShownLog::from_now(SERVER, postgres.log_path())),
        }),
        Err(source) => Err(Error::Shared { server: SERVER, source }),
    }
}
