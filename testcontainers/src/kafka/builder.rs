//! What can be chosen before a broker starts.

use std::collections::BTreeMap;

use super::Kafka;
use super::start::start;
use crate::Error;

/// Chooses how a broker starts; made by [`Kafka::builder`].
#[derive(Clone, Debug)]
pub struct KafkaBuilder {
    /// Broker properties that replace ours.
    pub(super) properties: BTreeMap<String, String>,
    /// The size of the heap, in the notation of `-Xmx`.
    pub(super) heap: String,
    /// Whether the broker is to run fast rather than start fast.
    pub(super) for_throughput: bool,
}

impl KafkaBuilder {
    pub(super) fn new() -> KafkaBuilder {
        KafkaBuilder { properties: BTreeMap::new(), heap: "512m".to_owned(), for_throughput: false }
    }

    /// Sets a broker property; replaces the default of Kafka or of this crate.
    ///
    /// Addresses, roles, node id and folders are this crate's own: they cannot be replaced.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> KafkaBuilder {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Sets the size of the JVM's heap, such as `"1g"`; 512 MB unless set.
    #[must_use]
    pub fn heap(mut self, size: impl Into<String>) -> KafkaBuilder {
        self.heap = size.into();
        self
    }

    /// Makes the broker run fast rather than start fast: all compilers and the parallel collector, for benchmarks.
    #[must_use]
    pub fn for_throughput(mut self) -> KafkaBuilder {
        self.for_throughput = true;
        self
    }

    /// Starts the broker and returns when it serves clients.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when Java, or on first use Maven, is not installed; otherwise what went wrong, with the end of
    /// the broker's log.
    pub fn start(self) -> Result<Kafka, Error> {
        start(&self)
    }
}
