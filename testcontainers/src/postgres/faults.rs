//! What a test may do to its own server.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::Postgres;
use crate::Error;

/// How long a stop may take. Postgres itself kills backends that ignore an immediate stop after five seconds.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

impl Postgres {
    /// Kills the postmaster and all its backends as `kill -9` does and returns when they are gone; does nothing when the
    /// server is not running.
    pub fn kill(&self) {
        self.server.kill();
    }

    /// Stops the server at once, without a checkpoint (`pg_ctl stop -m immediate`); the next start recovers. Does nothing
    /// when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within half a minute; it is killed then.
    pub fn stop_immediate(&self) -> Result<(), Error> {
        self.server.stop(Signal::SIGQUIT, STOP_PATIENCE)
    }

    /// Stops the server in order: open transactions are rolled back, a checkpoint is written (`pg_ctl stop -m fast`). Does
    /// nothing when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within half a minute; it is killed then.
    pub fn stop(&self) -> Result<(), Error> {
        self.server.stop(Signal::SIGINT, STOP_PATIENCE)
    }

    /// Starts the server again on the same data and port, and returns when it accepts connections. One that still runs is
    /// stopped in order first; one that was killed recovers.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`](super::PostgresBuilder::start) and [`Postgres::stop`].
    pub fn restart(&self) -> Result<(), Error> {
        self.stop()?;
        self.server.start()
    }

    /// Pauses the postmaster and all its backends (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.server.pause()
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.server.resume()
    }

    /// Fills the disk of a server that was started with [`PostgresBuilder::disk`](super::PostgresBuilder::disk).
    ///
    /// A statement that needs room fails then with SQLSTATE 53100, and the server stays up; when its write-ahead log finds no
    /// room, the server goes down. [`free_disk`](Postgres::free_disk) and [`restart`](Postgres::restart) bring it back.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it has no disk of its own.
    pub fn fill_disk(&self) -> Result<(), Error> {
        self.folder.disk()?.fill()
    }

    /// Gives the room back that [`fill_disk`](Postgres::fill_disk) took.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it has no disk of its own.
    pub fn free_disk(&self) -> Result<(), Error> {
        self.folder.disk()?.free()
    }
}
