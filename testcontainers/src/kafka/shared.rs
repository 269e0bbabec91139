//! The broker that all tests share, and that nobody may hurt: its handle has no faults.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use super::broker::SERVER;
use super::handle::Kafka;
use super::tool;
use crate::Error;
use crate::exported;
use crate::logs::ShownLog;
use crate::provider::Provider;

/// A use of the shared broker; made by [`Kafka::shared`]. The broker outlives it.
#[derive(Clone, Debug)]
pub struct SharedKafka {
    bootstrap: String,
    /// The broker's log from the moment this handle was made; `None` when the exported address came without one.
    /// Clones of the handle share it, so that a failing test shows it once.
    log: Option<Arc<ShownLog>>,
}

impl SharedKafka {
    /// Returns the address for `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Returns what the broker has logged since this handle was made; empty when its log is not known here.
    #[must_use]
    pub fn logs(&self) -> String {
        self.log.as_ref().map(|log| log.0.read()).unwrap_or_default()
    }

    /// Creates a topic with the default settings of the brokers. It takes about a second, the start of a JVM: a test with
    /// many topics creates them with its own client.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the tool's words, for instance when there is such a topic.
    pub fn create_topic(&self, topic: &str, partitions: u32) -> Result<(), Error> {
        tool::create_topic(&self.bootstrap, topic, partitions)
    }

    /// Returns a command that runs a class of Kafka's jars; see [`Kafka::tool`].
    ///
    /// # Errors
    ///
    /// As [`Kafka::tool`].
    pub fn tool<'a>(
        &self,
        class: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Command, Error> {
        tool::tool(class, arguments)
    }
}

pub(super) fn shared() -> Result<SharedKafka, Error> {
    if let Some(bootstrap) = exported::address(exported::KAFKA_BOOTSTRAP)? {
        let log =
            std::env::var_os(exported::KAFKA_LOG).map(|path| ShownLog::from_now(SERVER, Path::new(&path)));
        return Ok(SharedKafka { bootstrap, log });
    }
    if Provider::chosen()? == Provider::External {
        return Err(exported::missing(exported::KAFKA_BOOTSTRAP));
    }
    // Never dropped: the reaper ends the broker after the last test.
    static OURS: OnceLock<Result<Kafka, Error>> = OnceLock::new();
    match OURS.get_or_init(start_to_share) {
        Ok(kafka) => Ok(SharedKafka {
            bootstrap: kafka.bootstrap().to_owned(),
            log: Some(ShownLog::from_now(SERVER, kafka.broker(1).log_path())),
        }),
        Err(source) => Err(Error::Shared { server: SERVER, source }),
    }
}

/// Starts a broker that is never killed and may be starved by many tests at once: it keeps Kafka's own long session.
pub(crate) fn start_to_share() -> Result<Kafka, Error> {
    let patient = Kafka::builder().property("broker.session.timeout.ms", "9000");
    patient.property("broker.heartbeat.interval.ms", "2000").start()
}
