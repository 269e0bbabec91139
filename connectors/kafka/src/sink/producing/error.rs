//! What can go wrong while writing, and what can be done about it.

use std::fmt;
use std::time::Duration;

use levada_core::batch::Coordinates;
use levada_core::{ErrorClass, SinkError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use thiserror::Error;

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SinkConfigError {
    /// No bootstrap server.
    #[error("no bootstrap server is given")]
    NoBootstrap,
    /// A client property that is ours.
    #[error("the client property {property} is not yours to set; instead use {instead}")]
    OwnedProperty {
        /// The property.
        property: &'static str,
        /// What to use.
        instead: &'static str,
    },
    /// An option outside its range.
    #[error("the option `{option}` is out of its range: {range}")]
    OutOfRange {
        /// The option.
        option: &'static str,
        /// What it can be.
        range: &'static str,
    },
    /// A sink of another guarantee was made of it.
    #[error("this sink writes at least once, and exactly once was asked for: use the two-phase sink")]
    Guarantee,
}

/// What the client reports: a code of librdkafka or of a broker, with its text.
#[derive(Debug, Clone, Error)]
#[error("{text} ({code:?})")]
pub struct ClientError {
    pub(super) code: RDKafkaErrorCode,
    pub(super) text: String,
}

impl ClientError {
    /// Splits a wrapped error into its code and text.
    pub(super) fn of(error: &KafkaError) -> Self {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        Self { code, text: error.to_string() }
    }

    /// Tells whether the brokers say that somebody else has begun to use the transactional id, or that its transaction has
    /// timed out: they answer both alike.
    pub(super) fn is_fenced(&self) -> bool {
        use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
        matches!(self.code, Fenced | ProducerFenced | InvalidProducerEpoch)
    }

    pub(super) fn is_authentication(&self) -> bool {
        use RDKafkaErrorCode::{Authentication, SaslAuthenticationFailed};
        matches!(self.code, Authentication | SaslAuthenticationFailed)
    }

    /// Tells whether nobody was there to answer.
    pub(super) fn is_of_absence(&self) -> bool {
        use RDKafkaErrorCode::{
            AllBrokersDown, BrokerNotAvailable, BrokerTransportFailure, OperationTimedOut, RequestTimedOut,
        };
        matches!(
            self.code,
            AllBrokersDown
                | BrokerNotAvailable
                | BrokerTransportFailure
                | OperationTimedOut
                | RequestTimedOut
        )
    }

    /// Tells whether the message, not the moment, is what brokers refuse.
    fn is_of_the_message(&self) -> bool {
        use RDKafkaErrorCode::{
            InvalidMessage, InvalidMessageSize, InvalidRecord, InvalidTopic, MessageSizeTooLarge,
            TopicAuthorizationFailed, UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
        };
        matches!(
            self.code,
            InvalidMessage
                | InvalidMessageSize
                | InvalidRecord
                | InvalidTopic
                | MessageSizeTooLarge
                | TopicAuthorizationFailed
                | UnknownPartition
                | UnknownTopic
                | UnknownTopicOrPartition
        )
    }
}

/// A message that no broker has acknowledged.
#[derive(Debug, Clone)]
pub struct Undelivered {
    /// Its topic.
    pub topic: String,
    /// Its partition, if one was chosen.
    pub partition: Option<u32>,
    /// The record that it was made of.
    pub origin: Option<Coordinates>,
    /// The size of key, value and headers in bytes.
    pub bytes: usize,
    /// Why.
    pub cause: ClientError,
}

impl Undelivered {
    /// Tells whether no later attempt can deliver it either: it is too large or malformed, its topic or partition does not
    /// exist, or may not be written to.
    ///
    /// A message that shared a request with one that is too large is refused with it, and said to be too large as well: whoever
    /// leaves messages out looks at their [size](Undelivered::bytes).
    pub fn is_permanent(&self) -> bool {
        self.cause.is_of_the_message()
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "a message of {} bytes, made of record {origin},", self.bytes)?,
            None => write!(f, "a message of {} bytes", self.bytes)?,
        }
        write!(f, " was not delivered to topic {}", self.topic)?;
        match self.partition {
            Some(partition) => write!(f, ", partition {partition}"),
            None => Ok(()),
        }
    }
}

/// Everything that ends a producer.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum ProduceError {
    /// At least one message was not delivered.
    #[error("{first}; {failed} of {sent} messages failed")]
    NotDelivered {
        /// The first one that failed.
        first: Box<Undelivered>,
        /// How many have failed so far.
        failed: u64,
        /// How many were sent so far.
        sent: u64,
        /// Why the first one failed.
        #[source]
        cause: ClientError,
    },
    /// A message that the client cannot send as it is.
    #[error("a message for topic {topic} cannot be sent: {reason}")]
    Unsendable {
        /// Its topic.
        topic: String,
        /// The record that it was made of.
        origin: Option<Coordinates>,
        /// Why.
        reason: &'static str,
    },
    /// The client has failed for good.
    #[error("the Kafka client failed for good")]
    Client(#[source] ClientError),
    /// The transactional id is in use elsewhere, or its transaction has timed out.
    #[error(
        "the producer was fenced: its transactional id is in use elsewhere, or its transaction has timed out"
    )]
    Fenced(#[source] ClientError),
    /// Messages are without a report for longer than the client may take to give them up.
    #[error("{outstanding} of {sent} messages are neither acknowledged nor given up after {within:?}")]
    Unreported {
        /// How many.
        outstanding: u64,
        /// How many were sent.
        sent: u64,
        /// How long was waited.
        within: Duration,
    },
    /// No broker answered.
    #[error("no answer from {bootstrap} within {within:?} while {doing}")]
    Away {
        /// Who was asked.
        bootstrap: String,
        /// How long was waited.
        within: Duration,
        /// What was tried.
        doing: &'static str,
        /// What the client said last.
        #[source]
        last: Option<ClientError>,
    },
    /// The credentials were refused.
    #[error("{bootstrap} refused the client's credentials")]
    Authentication {
        /// Who was asked.
        bootstrap: String,
        /// The broker's answer.
        #[source]
        cause: ClientError,
    },
    /// A topic that was named beforehand does not exist or cannot be written to.
    #[error("topic {topic} cannot be written to")]
    Topic {
        /// The topic.
        topic: String,
        /// The broker's answer.
        #[source]
        cause: ClientError,
    },
    /// The transaction's timeout is above what the broker allows.
    #[error(
        "the broker refuses a transaction timeout of {timeout_ms} ms: it is above its `transaction.max.timeout.ms`. \
         Raise that on the brokers, or lower `transaction_timeout`, which bounds how long an outage may last"
    )]
    TimeoutTooLong {
        /// The timeout.
        timeout_ms: u32,
        /// The broker's answer.
        #[source]
        cause: ClientError,
    },
    /// A step of a transaction failed.
    #[error("cannot {doing} transactional id {id}")]
    Transaction {
        /// The transactional id.
        id: String,
        /// What was tried.
        doing: &'static str,
        /// The client's answer.
        #[source]
        cause: ClientError,
    },
    /// The coordinator could not be asked about a transactional id, or answered something else than was expected.
    #[error("cannot learn the producer id of transactional id {id}: {reason}")]
    Describe {
        /// The transactional id.
        id: String,
        /// Why.
        reason: String,
    },
    /// A call of the client does not come to its end.
    #[error("the Kafka client does not come to an end within {within:?} while {doing}")]
    Stuck {
        /// What was tried.
        doing: &'static str,
        /// How long was waited.
        within: Duration,
    },
    /// A task or a thread has ended without a result: it has panicked, or the runtime shuts down.
    #[error("{doing} ended without a result")]
    Lost {
        /// What was tried.
        doing: &'static str,
    },
    /// The client does not take a property.
    #[error("the Kafka client does not take property {property}: {reason}")]
    Property {
        /// The property.
        property: String,
        /// Why, without the value.
        reason: String,
    },
    /// The client or a thread of it could not be made.
    #[error("the Kafka client cannot be started")]
    Start(#[source] ClientError),
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] SinkConfigError),
}

impl ProduceError {
    /// Says why no client could be made. The client's own text repeats the value of a property, which may be a secret
    /// under a misspelt name.
    pub(super) fn of_creation(cause: &KafkaError) -> Self {
        match cause {
            KafkaError::ClientConfig(_, text, property, value) => {
                let is_shown = value.is_empty() || !text.contains(value);
                let unshown = "the value is not one that it can have";
                let reason = if is_shown { text.clone() } else { unshown.to_owned() };
                ProduceError::Property { property: property.clone(), reason }
            }
            cause => ProduceError::Start(ClientError::of(cause)),
        }
    }

    /// Says why the client has failed for good.
    pub(super) fn of_fatal(cause: ClientError) -> Self {
        if cause.is_fenced() { ProduceError::Fenced(cause) } else { ProduceError::Client(cause) }
    }

    /// Tells whether the transactional id was taken over, or its transaction timed out. Which of them, only the coordinator
    /// knows.
    pub fn is_fenced(&self) -> bool {
        match self {
            ProduceError::Fenced(_) => true,
            ProduceError::NotDelivered { cause, .. } | ProduceError::Transaction { cause, .. } => {
                cause.is_fenced()
            }
            _ => false,
        }
    }

    /// Returns what can be done about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            ProduceError::NotDelivered { first, .. } if first.is_permanent() => match &first.origin {
                Some(_) => ErrorClass::BadRecord,
                None => ErrorClass::Fatal,
            },
            ProduceError::Unsendable { origin: Some(_), .. } => ErrorClass::BadRecord,
            // A fence may be a mere timeout; who has been taken over learns it from the checkpoint store.
            ProduceError::NotDelivered { .. }
            | ProduceError::Fenced(_)
            | ProduceError::Unreported { .. }
            | ProduceError::Away { .. }
            | ProduceError::Describe { .. }
            | ProduceError::Stuck { .. } => ErrorClass::Reconnect,
            ProduceError::Transaction { cause, .. } if cause.is_fenced() => ErrorClass::Reconnect,
            _ => ErrorClass::Fatal,
        }
    }

    fn origin(&self) -> Option<&Coordinates> {
        match self {
            ProduceError::NotDelivered { first, .. } => first.origin.as_ref(),
            ProduceError::Unsendable { origin, .. } => origin.as_ref(),
            _ => None,
        }
    }
}

impl From<ProduceError> for SinkError {
    fn from(error: ProduceError) -> Self {
        let own = match (error.class(), error.origin()) {
            (ErrorClass::BadRecord, Some(origin)) => SinkError::bad_record(origin.clone(), error.to_string()),
            (class, _) => SinkError::new(class, error.to_string()),
        };
        match error {
            ProduceError::NotDelivered { cause, .. }
            | ProduceError::Client(cause)
            | ProduceError::Fenced(cause)
            | ProduceError::Away { last: Some(cause), .. }
            | ProduceError::Authentication { cause, .. }
            | ProduceError::Topic { cause, .. }
            | ProduceError::TimeoutTooLong { cause, .. }
            | ProduceError::Transaction { cause, .. }
            | ProduceError::Start(cause) => own.caused_by(cause),
            _ => own,
        }
    }
}
