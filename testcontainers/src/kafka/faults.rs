//! What a test may do to its own broker.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::handle::{Kafka, SERVER};
use super::start::launch_ready;
use crate::Error;

/// How long a graceful stop may take; a single broker hands nothing over and is done in a second.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

impl Kafka {
    /// Kills the broker as `kill -9` does and returns when it is gone; does nothing when it is not running.
    pub fn kill(&self) {
        self.process().take();
    }

    /// Stops the broker gracefully and returns when it has ended; does nothing when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within a minute; it is killed then.
    pub fn stop(&self) -> Result<(), Error> {
        match self.process().take() {
            Some(mut process) => {
                // A paused broker could not hear the request.
                process.signal_all(Signal::SIGCONT);
                process.signal(Signal::SIGTERM);
                process.wait(STOP_DEADLINE).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Starts the broker again on the same data and port, and returns when it serves clients. One that still runs is
    /// stopped gracefully first; one that was killed recovers its logs.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`](super::KafkaBuilder::start) and [`Kafka::stop`].
    pub fn restart(&self) -> Result<(), Error> {
        self.stop()?;
        *self.process() = Some(launch_ready(&self.launch)?);
        Ok(())
    }

    /// Pauses the broker (SIGSTOP): its connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets a paused broker go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)
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
