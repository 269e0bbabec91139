//! What a test may do to its own server.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::handle::{Postgres, SERVER};
use super::start::launch_ready;
use crate::Error;

/// How long a stop may take. Postgres itself kills backends that ignore an immediate stop after five seconds.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

impl Postgres {
    /// Kills the postmaster and all its backends as `kill -9` does and returns when they are gone; does nothing when the
    /// server is not running.
    pub fn kill(&self) {
        self.process().take();
    }

    /// Stops the server at once, without a checkpoint (`pg_ctl stop -m immediate`); the next start recovers. Does nothing
    /// when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within half a minute; it is killed then.
    pub fn stop_immediate(&self) -> Result<(), Error> {
        self.stop_by(Signal::SIGQUIT)
    }

    /// Stops the server in order: open transactions are rolled back, a checkpoint is written (`pg_ctl stop -m fast`). Does
    /// nothing when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within half a minute; it is killed then.
    pub fn stop(&self) -> Result<(), Error> {
        self.stop_by(Signal::SIGINT)
    }

    /// Starts the server again on the same data and port, and returns when it accepts connections. One that still runs is
    /// stopped in order first; one that was killed recovers.
    ///
    /// # Errors
    ///
    /// As [`PostgresBuilder::start`](super::PostgresBuilder::start) and [`Postgres::stop`].
    pub fn restart(&self) -> Result<(), Error> {
        self.stop()?;
        *self.process() = Some(launch_ready(&self.launch)?);
        Ok(())
    }

    /// Pauses the postmaster and all its backends (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)
    }

    fn stop_by(&self, signal: Signal) -> Result<(), Error> {
        match self.process().take() {
            Some(mut process) => {
                // The request first: a paused server that goes on hears it at once. Paused backends must go on too.
                process.signal(signal);
                process.signal_all(Signal::SIGCONT);
                process.wait(STOP_DEADLINE).map(|_| ())
            }
            None => Ok(()),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        match self.process().as_ref().filter(|process| process.identity().is_alive()) {
            Some(process) => {
                process.signal_all(signal);
                Ok(())
            }
            None => Err(Error::NotRunning { server: SERVER }),
        }
    }
}
