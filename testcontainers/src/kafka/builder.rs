//! What can be chosen before a cluster starts.

use std::collections::BTreeMap;

use super::Kafka;
use super::listeners::Listener;
use super::start::start;
use crate::Error;
use crate::cache::DEFAULT_VERSION;

/// Chooses how a cluster starts; made by [`Kafka::builder`].
#[derive(Clone, Debug)]
pub struct KafkaBuilder {
    /// How many brokers.
    pub(super) brokers: usize,
    /// The version of Kafka.
    pub(super) version: String,
    /// Broker properties that replace ours.
    pub(super) properties: BTreeMap<String, String>,
    /// The size of the heap, in the notation of `-Xmx`.
    pub(super) heap: String,
    /// Whether the brokers are to run fast rather than start fast.
    pub(super) for_throughput: bool,
    /// Whether there are listeners for TLS and SASL.
    pub(super) is_secured: bool,
    /// Whether there is a listener whose advertised address is a `Cut`.
    pub(super) is_behind_cut: bool,
    /// The size of each broker's own disk, in bytes.
    pub(super) disk: Option<u64>,
}

impl KafkaBuilder {
    pub(super) fn new() -> KafkaBuilder {
        KafkaBuilder {
            brokers: 1,
            version: DEFAULT_VERSION.to_owned(),
            properties: BTreeMap::new(),
            heap: "512m".to_owned(),
            for_throughput: false,
            is_secured: false,
            is_behind_cut: false,
            disk: None,
        }
    }

    /// Sets the number of brokers: 1, unless set, or 3. Each is a controller too. With three, every topic has three
    /// replicas unless it asks for fewer, and `acks=all` waits for two of them (`min.insync.replicas`).
    #[must_use]
    pub fn brokers(mut self, count: usize) -> KafkaBuilder {
        self.brokers = count;
        self
    }

    /// Sets the version of Apache Kafka, such as `"4.1.1"`; 4.3.0 unless set. Its jars are fetched once per machine, or it is
    /// the tag of the image.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> KafkaBuilder {
        self.version = version.into();
        self
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

    /// Makes the brokers run fast rather than start fast: all compilers and the parallel collector, for benchmarks.
    #[must_use]
    pub fn for_throughput(mut self) -> KafkaBuilder {
        self.for_throughput = true;
        self
    }

    /// Adds listeners for TLS with client certificates, for SASL (PLAIN, SCRAM), and for SASL over TLS, each on a port of
    /// its own; see [`Kafka::client_properties`]. The plaintext listener stays.
    #[must_use]
    pub fn secured(mut self) -> KafkaBuilder {
        self.is_secured = true;
        self
    }

    /// Adds a listener that is reached through a [`Cut`](crate::Cut) only: the brokers advertise the address of the proxy
    /// in front of them. See [`Kafka::bootstrap_behind_cut`] and [`Broker::cut`](super::Broker::cut).
    #[must_use]
    pub fn behind_cut(mut self) -> KafkaBuilder {
        self.is_behind_cut = true;
        self
    }

    /// Gives each broker's data a disk of its own of so many bytes, which can be filled
    /// ([`Broker::fill_disk`](super::Broker::fill_disk)). It is a `tmpfs`, so only root may. 64 MB are enough for a start.
    #[must_use]
    pub fn disk(mut self, bytes: u64) -> KafkaBuilder {
        self.disk = Some(bytes);
        self
    }

    /// Starts the cluster and returns when every broker serves clients.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when Java, or on first use Maven, is not installed; [`Error::Refused`] for a number of brokers
    /// that cannot be had, for what a container cannot have, or when servers are somebody else's
    /// (`LEVADA_PROVIDER=external`); [`Error::NeedsRoot`] for a [`disk`](KafkaBuilder::disk); otherwise what went wrong, with
    /// the end of the broker's log.
    pub fn start(self) -> Result<Kafka, Error> {
        start(&self)
    }

    /// Returns the listeners of each broker.
    pub(super) fn listeners(&self) -> Vec<Listener> {
        let mut listeners = vec![Listener::Plaintext];
        if self.is_behind_cut {
            listeners.push(Listener::Cut);
        }
        if self.is_secured {
            listeners.extend(Listener::SECURED);
        }
        listeners
    }
}
