//! What a test may do to all brokers of its own cluster at once.

use super::Kafka;
use super::start::start_all;
use crate::Error;

impl Kafka {
    /// Kills every broker as `kill -9` does and returns when they are gone.
    pub fn kill(&self) {
        for broker in self.brokers() {
            broker.kill();
        }
    }

    /// Stops every broker gracefully, one after the other, and returns when they have ended.
    ///
    /// # Errors
    ///
    /// As [`Broker::stop`](super::Broker::stop).
    pub fn stop(&self) -> Result<(), Error> {
        self.brokers().iter().try_for_each(super::Broker::stop)
    }

    /// Starts every broker again on the same data and ports, and returns when they serve clients. Those that still run
    /// are stopped gracefully first; those that were killed recover their logs.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`](super::KafkaBuilder::start) and [`Kafka::stop`].
    pub fn restart(&self) -> Result<(), Error> {
        self.stop()?;
        start_all(self.brokers())
    }

    /// Pauses every broker (SIGSTOP): connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.brokers().iter().try_for_each(super::Broker::pause)
    }

    /// Lets paused brokers go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.brokers().iter().try_for_each(super::Broker::resume)
    }
}
