//! The handle of a broker that one test owns.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::start::prepare;
use super::{KafkaBuilder, SharedKafka, shared, tool};
use crate::Error;
use crate::logs::{Log, ShownLog};
use crate::process::{DataFolder, Launch, Port, ServerProcess};

/// The name in messages.
pub(crate) const SERVER: &str = "Kafka";

/// A broker of one's own, to be hurt at will. It ends, and its folder goes, when the handle is dropped or this process
/// ends in any way.
///
/// A test that only reads and writes takes [`Kafka::shared`], which costs the start once.
///
/// Every method takes `&self`: one thread may kill the broker while another talks to it.
#[derive(Debug)]
pub struct Kafka {
    bootstrap: String,
    /// Shown after the server has ended and before its folder goes: fields are dropped in order.
    log: ShownLog,
    pub(super) launch: Launch,
    /// The running broker, if it runs. Held for the whole of an operation: a restart cannot overtake a stop.
    process: Mutex<Option<ServerProcess>>,
    // Dropped last, in this order: the folder once nothing writes to it, the ports once nothing listens.
    folder: DataFolder,
    _ports: [Port; 2],
}

impl Kafka {
    /// Starts a broker with the defaults for tests.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`].
    pub fn start() -> Result<Kafka, Error> {
        Kafka::builder().start()
    }

    /// Fetches the jars and archives the broker's classes, unless this machine has them already. A start does the same first.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`].
    pub fn prepare() -> Result<(), Error> {
        prepare()
    }

    /// Chooses how a broker starts.
    #[must_use]
    pub fn builder() -> KafkaBuilder {
        KafkaBuilder::new()
    }

    /// Returns the broker that all tests share: the one that `levada-testcontainers run` exported
    /// (`LEVADA_KAFKA_BOOTSTRAP`), else one that this process starts at the first call.
    ///
    /// Use topics, groups and transactional ids of your own ([`unique_name`](crate::unique_name)).
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`]; a failed start is not tried again, every later call returns its cause.
    pub fn shared() -> Result<SharedKafka, Error> {
        shared::shared()
    }

    pub(super) fn new(
        launch: Launch,
        process: ServerProcess,
        folder: DataFolder,
        broker: Port,
        controller: Port,
    ) -> Kafka {
        Kafka {
            bootstrap: format!("127.0.0.1:{}", broker.number()),
            log: ShownLog(Log::whole(SERVER, launch.log.clone())),
            launch,
            process: Mutex::new(Some(process)),
            folder,
            _ports: [broker, controller],
        }
    }

    /// Returns the address for `bootstrap.servers`; it stays the same across restarts.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Returns the number of the broker's process, or `None` when none was started or the last one was stopped.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.process().as_ref().map(|process| process.identity().pid)
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

    /// Returns a command that runs a class of Kafka's jars, such as `org.apache.kafka.tools.consumer.ConsoleConsumer`, with
    /// these arguments. The start of its JVM takes about a second. Add `--bootstrap-server` yourself where it is due.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] or a failed download, as at the start of a broker.
    pub fn tool<'a>(
        &self,
        class: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Command, Error> {
        tool::tool(class, arguments)
    }

    pub(super) fn process(&self) -> MutexGuard<'_, Option<ServerProcess>> {
        // A thread that panicked while it held the lock left either a process or none: both are states we handle.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Before the folder: dropping the process kills it.
        self.process().take();
    }
}
