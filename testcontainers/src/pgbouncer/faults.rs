//! What a test may do to its own pooler.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::PgBouncer;
use crate::Error;

/// How long transactions may take to end before a stop becomes a kill.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

impl PgBouncer {
    /// Kills the pooler as `kill -9` does and returns when it is gone; does nothing when it is not running.
    pub fn kill(&self) {
        self.server.kill();
    }

    /// Stops the pooler when the last connection to the server is given back (SIGINT): running transactions end first, in
    /// session mode clients leave first. Does nothing when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when that takes more than half a minute; it is killed then.
    pub fn stop(&self) -> Result<(), Error> {
        self.server.stop(Signal::SIGINT, STOP_PATIENCE)
    }

    /// Starts the pooler again on the same port, and returns when it accepts connections. One that still runs is killed
    /// first: it holds nothing that could be lost.
    ///
    /// # Errors
    ///
    /// As [`PgBouncerBuilder::start`](super::PgBouncerBuilder::start).
    pub fn restart(&self) -> Result<(), Error> {
        self.kill();
        self.server.start()
    }

    /// Pauses the pooler (SIGSTOP): connections stay open and nothing passes.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.server.pause()
    }

    /// Lets a paused pooler go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.server.resume()
    }
}
