//! What a Kafka source is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use levada_core::{SplitId, Timestamp};

use super::error::ConfigError;

/// Where a split starts that has no stored position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StartAt {
    /// At the first record that is still there.
    #[default]
    Earliest,
    /// Behind the last record that is readable when the source is opened.
    Latest,
    /// At the first record with this timestamp or a later one. Where there is none, at the end that the split had before
    /// that was asked: what comes is later.
    ///
    /// Timestamps need not be in order: earlier ones may follow, and later ones stand before.
    Timestamp(Timestamp),
    /// Where the [group](KafkaSourceConfig::group_id) has committed to be.
    Committed {
        /// Where a split starts of which the group has committed nothing.
        otherwise: Otherwise,
    },
    /// At these offsets. A split that is not named starts where the group has committed to be.
    Offsets {
        /// The first offset to read of each split.
        offsets: BTreeMap<SplitId, u64>,
        /// Where a split starts that is neither named nor committed.
        otherwise: Otherwise,
    },
}

impl StartAt {
    /// [SRC-13] Tells whether where a split starts depends on when that is found out: its end moves, and so does what others
    /// commit for the group.
    pub(super) fn is_momentary(&self, split: &SplitId) -> bool {
        match self {
            StartAt::Earliest => false,
            StartAt::Latest | StartAt::Timestamp(_) | StartAt::Committed { .. } => true,
            StartAt::Offsets { offsets, .. } => !offsets.contains_key(split),
        }
    }
}

/// What to do where the group has committed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Otherwise {
    /// Fail, and name the split.
    #[default]
    Fail,
    /// As [`StartAt::Earliest`].
    Earliest,
    /// As [`StartAt::Latest`].
    Latest,
}

/// What to do when records at a position are gone before they were read: retention or a deletion was faster.
///
/// A position *beyond* the end of a partition is always an error: the partition was truncated or made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenLost {
    /// Fail, with the gap in the error.
    #[default]
    Fail,
    /// Go on at the first record that is still there; the gap is counted.
    Earliest,
    /// Go on at the end; the gap is counted.
    Latest,
}

/// Where reading ends, each split for itself; exclusive. The whole read ends when all splits have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StopAt {
    /// Nowhere: the source waits for more.
    #[default]
    Never,
    /// At the end that each partition has when the source is opened: under [`Isolation::ReadCommitted`] the last stable
    /// offset, else the high watermark.
    LatestAtStart,
    /// At the first record with this timestamp or a later one; where there is none when the source is opened, at the end
    /// that the split has then, open transactions included.
    Timestamp(Timestamp),
    /// Where the [group](KafkaSourceConfig::group_id) has committed to be when the source is opened. A split of which it
    /// has committed nothing is an error.
    Committed,
    /// At these offsets, which may lie ahead. A split that is not named is an error.
    Offsets(BTreeMap<SplitId, u64>),
}

/// Which records of transactions are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// Only those of committed transactions, in offset order, up to the first open transaction.
    #[default]
    ReadCommitted,
    /// All, as they were written.
    ReadUncommitted,
}

impl Isolation {
    pub(super) fn as_property(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read_committed",
            Isolation::ReadUncommitted => "read_uncommitted",
        }
    }
}

/// Whether records carry their headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Headers {
    /// They do.
    #[default]
    Read,
    /// They do not: for whoever wants none. The client parses headers of each record anew, into memory of its own, also
    /// to find that there are none; that is a quarter of the processor time of reading small records.
    Skip,
}

/// How large a batch grows, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchBounds {
    /// The most records of a batch.
    pub records: usize,
    /// A batch is handed over when its payload has reached so many bytes; one record may exceed them.
    pub bytes: usize,
    /// The longest that a record waits for more to come while the receiver is busy; when it is not busy, records are
    /// handed over as soon as no more are there.
    pub age: Duration,
}

impl Default for BatchBounds {
    fn default() -> Self {
        Self { records: 4096, bytes: 1 << 20, age: Duration::from_millis(5) }
    }
}

/// What a [`KafkaSource`](super::KafkaSource) is told. Made by [`KafkaSourceConfig::new`], changed by the methods.
#[derive(Clone)]
pub struct KafkaSourceConfig {
    pub(super) bootstrap: String,
    pub(super) topics: Vec<String>,
    pub(super) start: StartAt,
    pub(super) stop: StopAt,
    pub(super) when_lost: WhenLost,
    pub(super) isolation: Isolation,
    pub(super) headers: Headers,
    pub(super) group_id: String,
    pub(super) client_id: String,
    pub(super) bounds: BatchBounds,
    pub(super) open_within: Duration,
    pub(super) hanging_after: Duration,
    pub(super) properties: BTreeMap<String, String>,
}

impl KafkaSourceConfig {
    /// Reads `topics` from the cluster behind `bootstrap` (`host:port`, several with commas between).
    pub fn new<T: Into<String>>(bootstrap: impl Into<String>, topics: impl IntoIterator<Item = T>) -> Self {
        Self {
            bootstrap: bootstrap.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            start: StartAt::default(),
            stop: StopAt::default(),
            when_lost: WhenLost::default(),
            isolation: Isolation::default(),
            headers: Headers::default(),
            group_id: "levada".to_owned(),
            client_id: "levada".to_owned(),
            bounds: BatchBounds::default(),
            open_within: Duration::from_secs(30),
            hanging_after: Duration::from_secs(60),
            properties: BTreeMap::new(),
        }
    }

    /// Sets where splits without a stored position start; default earliest.
    #[must_use]
    pub fn start_at(mut self, start: StartAt) -> Self {
        self.start = start;
        self
    }

    /// Sets where reading ends; default never.
    #[must_use]
    pub fn stop_at(mut self, stop: StopAt) -> Self {
        self.stop = stop;
        self
    }

    /// Sets what to do when records are gone before they were read; default fail.
    #[must_use]
    pub fn when_lost(mut self, when_lost: WhenLost) -> Self {
        self.when_lost = when_lost;
        self
    }

    /// Sets which records of transactions are read; default only committed ones.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets whether records carry their headers; default they do.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Names the consumer group, under which the broker sees the client. The source does not join it, and reads its offsets
    /// only where a start or stop is to be [committed](StartAt::Committed); default `levada`.
    #[must_use]
    pub fn group_id(mut self, group_id: impl Into<String>) -> Self {
        self.group_id = group_id.into();
        self
    }

    /// Names the client; the subtask's number is appended. Default `levada`.
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// Bounds the batches.
    #[must_use]
    pub fn batch_bounds(mut self, bounds: BatchBounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets how long opening may take before it fails with the last error of the client; default 30 s.
    #[must_use]
    pub fn open_within(mut self, deadline: Duration) -> Self {
        self.open_within = deadline;
        self
    }

    /// Sets how long an open transaction may stand in front of a split before it is said to hang, in the log and in the
    /// [status](super::SourceStatus::splits); default 60 s, how long Kafka by default lets a transaction live.
    #[must_use]
    pub fn hanging_after(mut self, patience: Duration) -> Self {
        self.hanging_after = patience;
        self
    }

    /// Passes a property on to librdkafka, over our defaults. Some are ours: see [`KafkaSourceConfig::check`].
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

    /// Checks everything that can be checked without a broker.
    ///
    /// # Errors
    /// Names what is missing, what is there twice, or the property that is ours and the option to use instead.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.bootstrap.trim().is_empty() {
            return Err(ConfigError::NoBootstrap);
        }
        if self.topics.is_empty() {
            return Err(ConfigError::NoTopics);
        }
        let mut seen = BTreeSet::new();
        if let Some(topic) = self.topics.iter().find(|topic| !seen.insert(topic.as_str())) {
            return Err(ConfigError::TopicTwice { topic: topic.clone() });
        }
        for property in self.properties.keys() {
            if let Some((name, instead)) = REFUSED.iter().find(|(name, _)| name == property) {
                return Err(ConfigError::OwnedProperty { property: name, instead });
            }
        }
        Ok(())
    }
}

/// Properties that are ours, and what to use instead.
const REFUSED: &[(&str, &str)] = &[
    ("enable.auto.commit", "nothing: positions are committed by the sink, never by the client on its own"),
    ("enable.auto.offset.store", "nothing: a position moves when its record is emitted"),
    ("auto.offset.reset", "`start_at` for the start, `when_lost` for what retention took"),
    ("enable.partition.eof", "nothing: it is always on, ends are detected by it"),
    ("partition.assignment.strategy", "nothing: partitions are dealt out by `owned_splits`"),
    ("allow.auto.create.topics", "nothing: a missing topic is an error"),
    ("isolation.level", "`isolation`"),
    ("bootstrap.servers", "the first argument of `new`"),
    ("metadata.broker.list", "the first argument of `new`"),
    ("group.id", "`group_id`"),
    ("client.id", "`client_id`"),
];

// Properties may hold passwords: their names alone are printed.
impl fmt::Debug for KafkaSourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceConfig")
            .field("bootstrap", &self.bootstrap)
            .field("topics", &self.topics)
            .field("start", &self.start)
            .field("stop", &self.stop)
            .field("when_lost", &self.when_lost)
            .field("isolation", &self.isolation)
            .field("headers", &self.headers)
            .field("group_id", &self.group_id)
            .field("client_id", &self.client_id)
            .field("bounds", &self.bounds)
            .field("open_within", &self.open_within)
            .field("hanging_after", &self.hanging_after)
            .field("properties", &self.properties.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [SRC-10]
    #[test]
    fn owned_property_is_refused_with_what_to_use_instead() {
        let owned = [
            "enable.auto.commit",
            "enable.auto.offset.store",
            "auto.offset.reset",
            "enable.partition.eof",
            "partition.assignment.strategy",
        ];
        for property in owned {
            let config = KafkaSourceConfig::new("localhost:9092", ["flights"]).property(property, "true");
            let message = config.check().expect_err(property).to_string();
            assert!(message.contains(property) && message.contains("instead"), "{message}");
        }
        let config =
            KafkaSourceConfig::new("localhost:9092", ["flights"]).property("auto.offset.reset", "latest");
        assert!(config.check().expect_err("refused").to_string().contains("`start_at`"));
    }

    /// [SRC-10]
    #[test]
    fn other_properties_are_passed_through() {
        let config =
            KafkaSourceConfig::new("localhost:9092", ["flights"]).property("fetch.wait.max.ms", "100");
        assert_eq!(config.check(), Ok(()));
    }

    /// [SRC-13] what must be stored before a record of it is read.
    #[test]
    fn a_start_that_is_not_always_the_same_is_momentary() {
        let (split, otherwise) = (SplitId::new("t", 0), Otherwise::Earliest);
        let named = |index| StartAt::Offsets { offsets: [(SplitId::new("t", index), 5)].into(), otherwise };
        let momentary =
            [StartAt::Latest, StartAt::Timestamp(Timestamp(7)), StartAt::Committed { otherwise }, named(1)];
        assert!(momentary.iter().all(|start| start.is_momentary(&split)));
        assert!([StartAt::Earliest, named(0)].iter().all(|start| !start.is_momentary(&split)));
    }

    #[test]
    fn a_topic_named_twice_is_refused() {
        let config = KafkaSourceConfig::new("localhost:9092", ["flights", "planes", "flights"]);
        assert_eq!(config.check(), Err(ConfigError::TopicTwice { topic: "flights".to_owned() }));
    }

    #[test]
    fn debug_prints_no_property_value() {
        let config =
            KafkaSourceConfig::new("localhost:9092", ["flights"]).property("sasl.password", "hunter2");
        let printed = format!("{config:?}");
        assert!(printed.contains("sasl.password") && !printed.contains("hunter2"));
    }
}
