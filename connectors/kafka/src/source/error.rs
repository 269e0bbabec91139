//! What can go wrong in a Kafka source, and what can be done about it.

use std::time::Duration;

use levada_core::{ErrorClass, SourceError, SplitId};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use thiserror::Error;

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No bootstrap server.
    #[error("no bootstrap server is given")]
    NoBootstrap,
    /// No topic.
    #[error("no topic is given")]
    NoTopics,
    /// A topic is named twice.
    #[error("topic {topic} is named twice")]
    TopicTwice {
        /// The topic.
        topic: String,
    },
    /// A client property that is ours.
    #[error("the client property {property} is not yours to set; instead use {instead}")]
    OwnedProperty {
        /// The property.
        property: &'static str,
        /// What to use.
        instead: &'static str,
    },
}

/// What the client reports: a code of librdkafka or of a broker, with its text.
#[derive(Debug, Clone, Error)]
#[error("{text} ({code:?})")]
pub(super) struct ClientError {
    pub(super) code: RDKafkaErrorCode,
    pub(super) text: String,
}

/// Everything that ends a source.
#[derive(Debug, Error)]
pub(super) enum ReadError {
    #[error("topic {topic} does not exist")]
    MissingTopic { topic: String },
    #[error("topic {topic} cannot be read")]
    Topic {
        topic: String,
        #[source]
        cause: ClientError,
    },
    #[error("topic {topic} was deleted while it was read")]
    TopicGone { topic: String },
    #[error(
        "topic {topic} was deleted and made anew while it was read: its id was {was} and is {is} now, so positions \
         stored for it mean nothing any more"
    )]
    TopicAnew { topic: String, was: String, is: String },
    #[error("no answer from {bootstrap} within {within:?} while {doing}")]
    Open {
        bootstrap: String,
        within: Duration,
        doing: &'static str,
        #[source]
        last: Option<ClientError>,
    },
    #[error("{bootstrap} refused the client's credentials")]
    Authentication {
        bootstrap: String,
        #[source]
        cause: ClientError,
    },
    #[error(
        "position {asked} of {split} is out of range: the partition holds [{low}, {high}); \
         lost to retention: [{asked}, {low}). Start the split from a position that exists"
    )]
    BehindRange { split: SplitId, asked: u64, low: u64, high: u64 },
    #[error(
        "position {asked} of {split} is out of range: the partition holds [{low}, {high}), so it was truncated or \
         re-created. Start the split from a position that exists"
    )]
    BeyondRange { split: SplitId, asked: u64, low: u64, high: u64 },
    #[error("position {asked} of {split} is out of range")]
    OutOfRange {
        split: SplitId,
        asked: u64,
        #[source]
        cause: ClientError,
    },
    #[error("cannot read {split} at {next}")]
    Split {
        split: SplitId,
        next: u64,
        #[source]
        cause: ClientError,
    },
    #[error("the Kafka client failed for good")]
    Client(#[source] ClientError),
    #[error("the Kafka client refused to {doing}")]
    Call {
        doing: &'static str,
        #[source]
        cause: KafkaError,
    },
    #[error("the Kafka client does not take property {property}: {reason}")]
    Property { property: String, reason: String },
    #[error("the group has committed nothing of {split}, and that is to fail")]
    NoCommitted { split: SplitId },
    #[error("no stop is known for {split}: it would be read for ever")]
    NoStop { split: SplitId },
    #[error("an offset is given for {split}, which is no partition of the topics that are read")]
    UnknownSplit { split: SplitId },
    #[error("no broker told the offsets of {split}")]
    NoOffsets { split: SplitId },
    #[error("the client was told that the cluster has no broker")]
    LetGo,
    #[error("opening was given up")]
    GivenUp,
}

impl ReadError {
    /// Says why no client could be made. The client's own text repeats the value of a property, which may be a secret
    /// under a misspelt name.
    pub(super) fn of_creation(cause: KafkaError) -> Self {
        match cause {
            KafkaError::ClientConfig(_, text, property, value) => {
                let is_shown = value.is_empty() || !text.contains(&value);
                let reason = if is_shown { text } else { "the value is not one that it can have".to_owned() };
                ReadError::Property { property, reason }
            }
            cause => ReadError::Call { doing: "start with this configuration", cause },
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            ReadError::Open { .. } | ReadError::NoOffsets { .. } | ReadError::LetGo => ErrorClass::Reconnect,
            _ => ErrorClass::Fatal,
        }
    }
}

impl From<ReadError> for SourceError {
    fn from(error: ReadError) -> Self {
        let own = SourceError::new(error.class(), error.to_string());
        match error {
            ReadError::Open { last: Some(cause), .. }
            | ReadError::Topic { cause, .. }
            | ReadError::Authentication { cause, .. }
            | ReadError::OutOfRange { cause, .. }
            | ReadError::Split { cause, .. }
            | ReadError::Client(cause) => own.caused_by(cause),
            ReadError::Call { cause, .. } => own.caused_by(cause),
            _ => own,
        }
    }
}

impl ClientError {
    /// Splits a wrapped error into its code and text.
    pub(super) fn of(error: &KafkaError) -> Self {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        Self { code, text: error.to_string() }
    }

    /// Tells whether waiting a little may help: the broker is away, busy or electing a leader.
    pub(super) fn is_retriable(&self) -> bool {
        use RDKafkaErrorCode::{
            AllBrokersDown, BrokerTransportFailure, CoordinatorLoadInProgress, CoordinatorNotAvailable,
            LeaderNotAvailable, MessageTimedOut, NetworkException, NotCoordinator, NotLeaderForPartition,
            OperationTimedOut, PreferredLeaderNotAvailable, RequestTimedOut, Resolve, Retry, SSL,
            TimedOutQueue, WaitingForCoordinator,
        };
        matches!(
            self.code,
            AllBrokersDown
                | BrokerTransportFailure
                | CoordinatorLoadInProgress
                | CoordinatorNotAvailable
                | LeaderNotAvailable
                | MessageTimedOut
                | NetworkException
                | NotCoordinator
                | NotLeaderForPartition
                | OperationTimedOut
                | PreferredLeaderNotAvailable
                | RequestTimedOut
                | Resolve
                | Retry
                | SSL
                | TimedOutQueue
                | WaitingForCoordinator
        )
    }
}
