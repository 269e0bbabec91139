//! The handle of a server that one test owns.

use std::path::Path;

use super::secured::Secrets;
use super::start::prepare;
use super::{Database, PostgresBuilder, SharedPostgres, psql, shared, shared_memory};
use crate::Error;
use crate::logs::{Log, ShownLog};
use crate::process::{DataFolder, Port};
use crate::server::Server;

/// The name in messages.
pub(crate) const SERVER: &str = "Postgres";

/// The superuser of the server. Its password is no secret: the server listens on 127.0.0.1 and holds what tests wrote.
pub(crate) const USER: &str = "levada";
pub(crate) const PASSWORD: &str = "levada-secret";

/// A Postgres server of one's own, to be hurt at will. It ends, and its folder goes, when the handle is dropped or this
/// process ends in any way.
///
/// A test that only reads and writes takes [`Postgres::database`], a database of its own on the shared server.
///
/// Every method takes `&self`: one thread may kill the server while another talks to it.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    // Dropped in order: the server first; the log is shown before its folder goes; the port when nothing listens.
    pub(super) server: Box<dyn Server>,
    log: ShownLog,
    pub(super) folder: DataFolder,
    port: Port,
    /// How it was started, for a standby to be started likewise.
    pub(super) builder: PostgresBuilder,
    /// Its certificates, if it speaks TLS.
    pub(super) secrets: Option<Secrets>,
}

impl Postgres {
    /// Starts a server with the defaults for tests: no `fsync`, 200 connections, UTC, password authentication.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`].
    pub fn start() -> Result<Postgres, Error> {
        Postgres::builder().start()
    }

    /// Initialises a data folder in the cache, unless this machine has one already. A start does the same first.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`].
    pub fn prepare() -> Result<(), Error> {
        prepare()
    }

    /// Chooses how a server starts.
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::new()
    }

    /// Returns the server that all tests share: the one that `levada-testcontainers run` exported
    /// (`LEVADA_POSTGRES_URL`), else one that this process starts at the first call.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`]; a failed start is not tried again, every later call returns its cause.
    pub fn shared() -> Result<SharedPostgres, Error> {
        shared::shared()
    }

    /// Creates an empty database on the shared server; it is dropped with the returned handle.
    ///
    /// # Errors
    ///
    /// As [`Postgres::shared`], or what `CREATE DATABASE` answered.
    pub fn database() -> Result<Database, Error> {
        shared::shared()?.database()
    }

    pub(super) fn new(
        server: Box<dyn Server>,
        log: Log,
        folder: DataFolder,
        port: Port,
        builder: PostgresBuilder,
        secrets: Option<Secrets>,
    ) -> Postgres {
        let url = format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/postgres", port.number());
        Postgres { url, server, log: ShownLog(log), folder, port, builder, secrets }
    }

    /// Returns the server's address; it stays the same across restarts.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Returns the URL of the database `postgres` with user and password; it stays the same across restarts. It says nothing
    /// about TLS.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the number of the postmaster's process, or `None` when the last one was stopped or killed.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.server.pid()
    }

    /// Returns everything that the server has logged, over all its restarts.
    #[must_use]
    pub fn logs(&self) -> String {
        self.log.0.read()
    }

    /// Returns the file of the log; it goes with the handle.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.log.0.path()
    }

    /// Returns the end of the log.
    pub(super) fn log_tail(&self) -> String {
        self.log.0.tail()
    }

    /// Returns the folder with data and log; it goes with the handle.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs SQL through `psql` and returns the rows: one per line, columns separated by `|`, without headers. A statement
    /// may take as long as it does; a server that takes no connection is given up after half a minute.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the server's message when a statement fails, with psql's when it cannot connect.
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        psql::psql(&self.url, sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // What cannot be stopped so is killed when the server is dropped.
        self.stop_immediate().ok();
        shared_memory::release(&self.folder.data());
    }
}
