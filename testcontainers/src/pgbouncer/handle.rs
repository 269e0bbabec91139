//! The handle of a pooler.

use std::path::Path;

use super::PgBouncerBuilder;
use crate::logs::{Log, ShownLog};
use crate::postgres::{PASSWORD, USER};
use crate::process::{DataFolder, Port};
use crate::server::Server;
use crate::{Error, Postgres};

/// The name in messages.
pub(super) const SERVER: &str = "PgBouncer";

/// A PgBouncer in front of a Postgres server: most tests of a client should pass through one too, because a pool in
/// transaction mode takes the session away between two transactions, and with it what `SET`, `PREPARE`, `LISTEN`, temporary
/// tables and session locks left there. It ends, and its folder goes, when the handle is dropped or this process ends in any way.
///
/// It knows the server by its address: a server that was killed and restarted is found again. Users other than the first
/// one may pass too: their passwords are asked for at the server.
///
/// Every method takes `&self`: one thread may kill it while another talks through it.
#[derive(Debug)]
pub struct PgBouncer {
    url: String,
    // Dropped in order: the server first; the log is shown before its folder goes; the port when nothing listens.
    pub(super) server: Box<dyn Server>,
    log: ShownLog,
    folder: DataFolder,
    port: Port,
}

impl PgBouncer {
    /// Starts a pooler in transaction mode in front of this server.
    ///
    /// ```no_run
    /// # use levada_testcontainers::{PgBouncer, Postgres};
    /// let postgres = Postgres::start()?;
    /// let pooler = PgBouncer::start(&postgres)?;
    /// println!("connect to {} with your Postgres client", pooler.url());
    /// # Ok::<(), levada_testcontainers::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`PgBouncerBuilder::start`].
    pub fn start(postgres: &Postgres) -> Result<PgBouncer, Error> {
        PgBouncer::builder(postgres).start()
    }

    /// Chooses how a pooler in front of this server starts.
    #[must_use]
    pub fn builder(postgres: &Postgres) -> PgBouncerBuilder {
        PgBouncerBuilder::new(postgres)
    }

    pub(super) fn new(server: Box<dyn Server>, log: Log, folder: DataFolder, port: Port) -> PgBouncer {
        let url = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", port.number());
        PgBouncer { url, server, log: ShownLog(log), folder, port }
    }

    /// Returns the pooler's address; it stays the same across restarts.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns the URL of the server's database `postgres` by way of the pooler, with user and password; it stays the same
    /// across restarts.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the number of the pooler's process, or `None` when the last one was stopped or killed.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.server.pid()
    }

    /// Returns everything that the pooler has logged, over all its restarts.
    #[must_use]
    pub fn logs(&self) -> String {
        self.log.0.read()
    }

    /// Returns the file of the log; it goes with the handle.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.log.0.path()
    }

    /// Returns the folder with configuration and log; it goes with the handle.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
