//! One broker of a cluster: what a test may see of it and do to it.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::listeners::Listener;
use super::node::Node;
use crate::Error;
use crate::cut::Cut;
use crate::logs::{Log, ShownLog};
use crate::process::DataFolder;
use crate::server::Server;

/// The name in messages.
pub(crate) const SERVER: &str = "Kafka";

/// How long a graceful stop may take; a broker that has nobody to hand over to is done in a second.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// One broker; see [`Kafka::broker`](super::Kafka::broker).
#[derive(Debug)]
pub struct Broker {
    // Dropped in order: the server first; the log is shown before its folder goes; the ports when nothing listens.
    server: Box<dyn Server>,
    log: ShownLog,
    folder: DataFolder,
    node: Node,
    /// What stands in front of it, if anything.
    cut: Option<Cut>,
}

impl Broker {
    pub(super) fn new(
        server: Box<dyn Server>,
        log: Log,
        folder: DataFolder,
        node: Node,
        cut: Option<Cut>,
    ) -> Broker {
        Broker { server, log: ShownLog(log), folder, node, cut }
    }

    /// Returns the proxy in front of the broker's cut listener; see [`KafkaBuilder::behind_cut`](super::KafkaBuilder::behind_cut).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the cluster was not started behind one.
    pub fn cut(&self) -> Result<&Cut, Error> {
        self.cut
            .as_ref()
            .ok_or(Error::Refused { what: "a Cut in front of a broker needs the builder's `behind_cut`" })
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        self.server.start()
    }

    #[cfg(feature = "docker")]
    pub(super) fn run_inside(&self, command: &[&str]) -> Result<std::process::Output, Error> {
        self.server.run_inside(command)
    }

    pub(super) fn address_of(&self, listener: Listener) -> Option<String> {
        self.node.address(listener)
    }

    /// Returns the number that the cluster knows the broker by, from 1 on.
    #[must_use]
    pub fn id(&self) -> usize {
        self.node.id
    }

    /// Returns the address of the broker's plaintext listener; it stays the same across restarts.
    #[must_use]
    pub fn address(&self) -> String {
        // Every broker has this listener.
        self.address_of(Listener::Plaintext).unwrap_or_default()
    }

    /// Returns the number of the broker's process, or `None` when the last one was stopped or killed.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.server.pid()
    }

    /// Returns everything that the broker has logged, over all its restarts.
    #[must_use]
    pub fn logs(&self) -> String {
        self.log.0.read()
    }

    /// Returns the file of the log; it goes with the handle.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.log.0.path()
    }

    /// Returns the folder with data, configuration and log; it goes with the handle.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the broker as `kill -9` does and returns when it is gone; does nothing when it is not running.
    pub fn kill(&self) {
        self.server.kill();
    }

    /// Stops the broker gracefully and returns when it has ended; does nothing when it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] when it has not ended within a minute; it is killed then.
    pub fn stop(&self) -> Result<(), Error> {
        self.server.stop(Signal::SIGTERM, STOP_PATIENCE)
    }

    /// Starts the broker again on the same data and ports, and returns when it serves clients. One that still runs is
    /// stopped gracefully first; one that was killed recovers its logs.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`](super::KafkaBuilder::start) and [`Broker::stop`].
    pub fn restart(&self) -> Result<(), Error> {
        self.stop()?;
        self.start()
    }

    /// Pauses the broker (SIGSTOP): its connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn pause(&self) -> Result<(), Error> {
        self.server.pause()
    }

    /// Lets a paused broker go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`].
    pub fn resume(&self) -> Result<(), Error> {
        self.server.resume()
    }

    /// Fills the disk of a broker that was started with [`KafkaBuilder::disk`](super::KafkaBuilder::disk).
    ///
    /// At its next write the broker ends by itself; [`free_disk`](Broker::free_disk) and [`restart`](Broker::restart) bring it
    /// back.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it has no disk of its own.
    pub fn fill_disk(&self) -> Result<(), Error> {
        self.folder.disk()?.fill()
    }

    /// Gives the room back that [`fill_disk`](Broker::fill_disk) took.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it has no disk of its own.
    pub fn free_disk(&self) -> Result<(), Error> {
        self.folder.disk()?.free()
    }
}
