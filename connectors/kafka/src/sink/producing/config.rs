//! What a Kafka sink is told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::error::SinkConfigError;

/// What a sink promises its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Guarantee {
    /// Every record is there; those since the last checkpoint are there again after a failure.
    #[default]
    AtLeastOnce,
    /// Readers of committed data see every record once: transactions are committed when their checkpoint is complete.
    ExactlyOnceByCheckpoint,
}

/// How long a broker lets a transaction stay open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionTimeout {
    /// So long from the first record on, in whole milliseconds: at least a second, at most what the broker's
    /// `transaction.max.timeout.ms` allows, 15 min unless it says otherwise.
    After(Duration),
    /// For ever: on Kafka 4.1 or later, whose `transaction.max.timeout.ms` is 2147483647. An outage of any length loses
    /// nothing then. The price: readers of committed data do not get past a transaction that nobody ends, so whoever gives a
    /// job up has to abort what it has left open.
    Never,
}

impl TransactionTimeout {
    /// The timeout that brokers since 4.1 exempt from their scan.
    const NEVER: u32 = i32::MAX as u32;

    pub(super) fn milliseconds(self) -> u32 {
        match self {
            TransactionTimeout::After(timeout) => u32::try_from(timeout.as_millis()).unwrap_or(Self::NEVER),
            TransactionTimeout::Never => Self::NEVER,
        }
    }
}

impl Default for TransactionTimeout {
    fn default() -> Self {
        TransactionTimeout::After(Duration::from_secs(15 * 60))
    }
}

/// Where messages go whose serialiser names no partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Partitioner {
    /// By the key's hash as Kafka's own clients compute it (murmur2), so that a key lands where other producers put it.
    /// An empty key is a key.
    ///
    /// Without a key: to one partition for about 10 ms (the client's `sticky.partitioning.linger.ms`), then to another one
    /// at random. Java's clients do alike, but change by bytes and favour brokers that answer fast: for these messages
    /// there is no place where others would have put them.
    #[default]
    Murmur2,
    /// The same, but all messages without a key go where an empty key goes.
    Murmur2NullIsEmpty,
    /// By the key's CRC-32, the default of librdkafka and of programs on it. Without a key, or with an empty one, as above.
    Crc32,
    /// By the key's FNV-1a, the default of Sarama. Without a key as above.
    Fnv1a,
    /// At random, also with a key.
    Random,
}

impl Partitioner {
    pub(super) fn as_property(self) -> &'static str {
        match self {
            Partitioner::Murmur2 => "murmur2_random",
            Partitioner::Murmur2NullIsEmpty => "murmur2",
            Partitioner::Crc32 => "consistent_random",
            Partitioner::Fnv1a => "fnv1a_random",
            Partitioner::Random => "random",
        }
    }
}

/// What a Kafka sink is told. Made by [`KafkaSinkConfig::new`], changed by the methods.
#[derive(Clone)]
pub struct KafkaSinkConfig {
    pub(super) bootstrap: String,
    pub(crate) guarantee: Guarantee,
    pub(super) client_id: String,
    pub(crate) topics: Vec<String>,
    pub(super) partitioner: Partitioner,
    pub(super) linger: Duration,
    pub(super) in_flight_bytes: u32,
    pub(super) delivery_timeout: Duration,
    pub(crate) transaction_timeout: TransactionTimeout,
    pub(crate) writers: u32,
    pub(crate) slots: u32,
    pub(crate) open_within: Duration,
    pub(super) properties: BTreeMap<String, String>,
}

impl KafkaSinkConfig {
    /// Writes to the cluster behind `bootstrap` (`host:port`, several with commas between).
    pub fn new(bootstrap: impl Into<String>) -> Self {
        Self {
            bootstrap: bootstrap.into(),
            guarantee: Guarantee::default(),
            client_id: "levada".to_owned(),
            topics: Vec::new(),
            partitioner: Partitioner::default(),
            linger: Duration::from_millis(5),
            in_flight_bytes: 32 << 20,
            delivery_timeout: Duration::from_secs(120),
            transaction_timeout: TransactionTimeout::default(),
            writers: 1,
            slots: 3,
            open_within: Duration::from_secs(30),
            properties: BTreeMap::new(),
        }
    }

    /// Sets what readers are promised; default at least once.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// Names the client; what tells its producers apart is appended. Default `levada`.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Names topics that will be written to: they must exist when the sink is opened, and their leaders are connected before
    /// the first record. Others may be written to as well.
    #[must_use]
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// Sets where messages go whose serialiser names no partition; default as Kafka's own clients.
    #[must_use]
    pub fn partitioner(mut self, partitioner: Partitioner) -> Self {
        self.partitioner = partitioner;
        self
    }

    /// Sets how long a message waits for others of its partition, to share a request; default 5 ms. A flush waits as long
    /// for its last messages.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Bounds what a producer holds of messages that brokers have not acknowledged; default 32 MiB. A message counts with key,
    /// value, headers and 256 bytes. Writing waits for room; one message may exceed the bound, alone.
    #[must_use]
    pub fn in_flight_bytes(mut self, bytes: u32) -> Self {
        self.in_flight_bytes = bytes;
        self
    }

    /// Sets how long the client tries to deliver a message before it gives it up, which fails the sink; default 120 s, and
    /// not longer than a transaction's timeout.
    #[must_use]
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self
    }

    /// Sets how long a broker lets a transaction stay open; default 15 min. It has to cover the checkpoint interval, the
    /// checkpoint's own time and the longest outage after which a restart shall still commit.
    #[must_use]
    pub fn transaction_timeout(mut self, timeout: TransactionTimeout) -> Self {
        self.transaction_timeout = timeout;
        self
    }

    /// Sets how many producers a process writes with; default one, whatever the parallelism: a producer serves many threads,
    /// and one transaction is committed as a whole.
    #[must_use]
    pub fn writers(mut self, writers: u32) -> Self {
        self.writers = writers;
        self
    }

    /// Sets how many transactional producers each writer keeps: one that is written to, one that waits for its checkpoint,
    /// one that is made ready. Default three, which is the least; more are added where these do not do.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Sets how long opening, and making a transactional producer ready, may take before it fails with the last error of
    /// the client; default 30 s.
    #[must_use]
    pub fn open_within(mut self, deadline: Duration) -> Self {
        self.open_within = deadline;
        self
    }

    /// Passes a property on to librdkafka, over our defaults. Some are ours: see [`KafkaSinkConfig::check`].
    ///
    /// One batch is in flight on each connection unless `max.in.flight.requests.per.connection` says otherwise. With more, a transaction is given
    /// up now and then, and has to be written again.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Passes properties on to librdkafka.
    #[must_use]
    pub fn properties(mut self, properties: BTreeMap<String, String>) -> Self {
        self.properties.extend(properties);
        self
    }

    /// Returns what another client needs to reach the same brokers in the same way.
    pub(crate) fn all_properties(&self) -> BTreeMap<String, String> {
        let mut properties = self.properties.clone();
        properties.insert("bootstrap.servers".to_owned(), self.bootstrap.clone());
        properties.insert("client.id".to_owned(), self.client_id.clone());
        properties
    }

    /// Returns the timeout that brokers are told.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.transaction_timeout.milliseconds().into())
    }

    /// Returns how long brokers let a transaction stay open; `None` for ever.
    pub(crate) fn finite_timeout(&self) -> Option<Duration> {
        match self.transaction_timeout {
            TransactionTimeout::After(timeout) => Some(timeout),
            TransactionTimeout::Never => None,
        }
    }

    /// Returns how long the client tries to deliver a message.
    pub(crate) fn delivers_within(&self) -> Duration {
        match self.guarantee {
            Guarantee::AtLeastOnce => self.delivery_timeout,
            Guarantee::ExactlyOnceByCheckpoint => {
                let open = Duration::from_millis(self.transaction_timeout.milliseconds().into());
                self.delivery_timeout.min(open)
            }
        }
    }

    /// Checks everything that can be checked without a broker.
    ///
    /// # Errors
    /// Names what is missing or out of range, or the property that is ours and the option to use instead.
    pub fn check(&self) -> Result<(), SinkConfigError> {
        if self.bootstrap.trim().is_empty() {
            return Err(SinkConfigError::NoBootstrap);
        }
        for property in self.properties.keys() {
            if let Some((name, instead)) = REFUSED.iter().find(|(name, _)| name == property) {
                return Err(SinkConfigError::OwnedProperty { property: name, instead });
            }
        }
        self.check_ranges()
    }

    fn check_ranges(&self) -> Result<(), SinkConfigError> {
        let out = |option, range| Err(SinkConfigError::OutOfRange { option, range });
        if let TransactionTimeout::After(timeout) = self.transaction_timeout {
            // The largest value is the one that means `Never`: nobody shall get that by accident.
            if timeout < Duration::from_secs(1)
                || timeout.as_millis() >= u128::from(TransactionTimeout::NEVER)
            {
                return out("transaction_timeout", "1 s to 2147483646 ms, or `Never`");
            }
        }
        if self.delivery_timeout.as_millis() > i32::MAX as u128 || self.delivers_within() <= self.linger {
            return out("delivery_timeout", "longer than `linger`, up to 2147483647 ms");
        }
        if self.in_flight_bytes < 1 << 16 {
            return out("in_flight_bytes", "64 KiB or more");
        }
        if self.writers == 0 {
            return out("writers", "1 or more");
        }
        if self.slots < 3 {
            return out("slots", "3 or more");
        }
        Ok(())
    }
}

/// Properties that are ours, and what to use instead.
const REFUSED: &[(&str, &str)] = &[
    ("transactional.id", "nothing: ids are made of the job, the attempt and the slot"),
    ("transaction.timeout.ms", "`transaction_timeout`"),
    ("message.timeout.ms", "`delivery_timeout`"),
    ("delivery.timeout.ms", "`delivery_timeout`"),
    ("enable.idempotence", "nothing: it is always on, retries neither double nor reorder"),
    ("acks", "nothing: every in-sync replica acknowledges"),
    ("request.required.acks", "nothing: every in-sync replica acknowledges"),
    ("delivery.report.only.error", "nothing: every report is counted"),
    ("partitioner", "`partitioner`"),
    ("linger.ms", "`linger`"),
    ("queue.buffering.max.ms", "`linger`"),
    ("queue.buffering.max.messages", "`in_flight_bytes`"),
    ("queue.buffering.max.kbytes", "`in_flight_bytes`"),
    ("bootstrap.servers", "the argument of `new`"),
    ("metadata.broker.list", "the argument of `new`"),
    ("client.id", "`client_id`"),
];

// Properties may hold passwords: their names alone are printed.
impl fmt::Debug for KafkaSinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSinkConfig")
            .field("bootstrap", &self.bootstrap)
            .field("guarantee", &self.guarantee)
            .field("client_id", &self.client_id)
            .field("topics", &self.topics)
            .field("partitioner", &self.partitioner)
            .field("linger", &self.linger)
            .field("in_flight_bytes", &self.in_flight_bytes)
            .field("delivery_timeout", &self.delivery_timeout)
            .field("transaction_timeout", &self.transaction_timeout)
            .field("writers", &self.writers)
            .field("slots", &self.slots)
            .field("open_within", &self.open_within)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> KafkaSinkConfig {
        KafkaSinkConfig::new("localhost:9092")
    }

    /// [SRC-10] the sink's part.
    #[test]
    fn owned_property_is_refused_with_what_to_use_instead() {
        for (property, _) in REFUSED {
            let message = config().property(*property, "1").check().expect_err(property).to_string();
            assert!(message.contains(property) && message.contains("instead"), "{message}");
        }
        let refused = config().property("transaction.timeout.ms", "1000").check().expect_err("refused");
        assert!(refused.to_string().contains("`transaction_timeout`"), "{refused}");
        assert_eq!(config().property("compression.type", "zstd").check(), Ok(()));
    }

    #[test]
    fn debug_prints_no_property_value() {
        let printed = format!("{:?}", config().property("sasl.password", "hunter2"));
        assert!(printed.contains("sasl.password") && !printed.contains("hunter2"));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_range() {
        let timeout = |ms| TransactionTimeout::After(Duration::from_millis(ms));
        let wrong = [
            config().slots(2),
            config().writers(0),
            config().in_flight_bytes(100),
            config().linger(Duration::from_secs(120)),
            config().transaction_timeout(timeout(999)),
            config().transaction_timeout(timeout(i32::MAX as u64)),
        ];
        for config in wrong {
            assert!(matches!(config.check(), Err(SinkConfigError::OutOfRange { .. })), "{config:?}");
        }
        assert_eq!(config().check(), Ok(()));
        assert_eq!(config().transaction_timeout(TransactionTimeout::Never).check(), Ok(()));
    }
}
