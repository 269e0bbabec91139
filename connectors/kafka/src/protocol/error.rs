//! What can go wrong between this client and a broker.

use std::fmt;
use std::io;
use std::time::Duration;

use levada_core::BoxError;

use super::address::Address;
use super::api::VersionSpan;
use super::code::ErrorCode;

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// No connection. Nothing was sent.
    #[error("cannot connect to {broker}")]
    Connect {
        /// Where to.
        broker: Address,
        /// The system's own words.
        #[source]
        cause: io::Error,
    },
    /// No encryption that both sides agree to, or a certificate that one of them does not take.
    #[error(
        "no TLS with {broker}: check ssl.ca.location, the client's certificate, and the name in the broker's"
    )]
    Tls {
        /// Whom with.
        broker: Address,
        /// What was refused.
        #[source]
        cause: io::Error,
    },
    /// The broker does not take the client for who it says it is.
    #[error("{broker} did not let the client in")]
    Authentication {
        /// Who.
        broker: Address,
        /// Why.
        #[source]
        cause: BoxError,
    },
    /// The connection ended in the middle.
    #[error("the connection to {broker} broke during {request}")]
    Broken {
        /// Whom to.
        broker: Address,
        /// What was asked.
        request: String,
        /// The system's own words.
        #[source]
        cause: io::Error,
    },
    /// The connection stands, and nothing comes.
    #[error("{broker} did not answer {request} within {within:?}")]
    NoAnswer {
        /// Who.
        broker: Address,
        /// What was asked.
        request: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// What came is no answer of a broker to this request.
    #[error("what {broker} sent is no answer to {request}: {reason}")]
    Malformed {
        /// Who.
        broker: Address,
        /// What was asked.
        request: String,
        /// What does not fit.
        reason: String,
    },
    /// The request cannot be written down; nothing was sent.
    #[error("{request} cannot be encoded: {reason}")]
    Unencodable {
        /// Which.
        request: String,
        /// What does not fit.
        reason: String,
    },
    /// The broker is too old, or too new.
    #[error("{broker} speaks {} of {api}; {needed_for} needs {ours}", spoken(.theirs))]
    Unsupported {
        /// Who.
        broker: Address,
        /// Which request.
        api: &'static str,
        /// What the broker speaks of it, if anything.
        theirs: Option<VersionSpan>,
        /// What is spoken here.
        ours: VersionSpan,
        /// What cannot be done.
        needed_for: &'static str,
    },
    /// The broker has understood and says no.
    #[error("{request} was refused: {code}{}", said(.message))]
    Refused {
        /// What was asked.
        request: String,
        /// What was answered.
        code: ErrorCode,
        /// The broker's own words, where it has some.
        message: Option<String>,
    },
    /// The request went out, and whether it was carried out is not known. Ask the coordinator before anything else.
    #[error("{broker} was sent {request}, and its answer is lost: it may have been carried out or not")]
    OutcomeUnknown {
        /// Who.
        broker: Address,
        /// What was asked.
        request: String,
        /// How the answer was lost.
        #[source]
        cause: Box<ProtocolError>,
    },
    /// The cluster does not name the broker that is to be asked.
    #[error("the cluster has no broker {broker_id} now")]
    UnknownBroker {
        /// Its number.
        broker_id: i32,
    },
    /// The partition has no leader.
    #[error("partition {partition} of {topic} has no leader now")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The cluster changed while all its brokers were asked.
    #[error("coordinators moved while {request} went round")]
    Moving {
        /// What was asked.
        request: String,
    },
    /// Tried until there was no time left.
    #[error("{request} did not succeed within {within:?}")]
    Deadline {
        /// What was asked.
        request: String,
        /// How much time there was.
        within: Duration,
        /// Why the last attempt failed.
        #[source]
        last: Box<ProtocolError>,
    },
}

impl ProtocolError {
    /// Returns the code with which a broker refused, also behind a deadline.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            ProtocolError::Refused { code, .. } => Some(*code),
            ProtocolError::Deadline { last, .. } => last.code(),
            _ => None,
        }
    }

    /// Tells whether the request may have been carried out: whoever gets this must ask the coordinator.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, ProtocolError::OutcomeUnknown { .. })
    }

    /// Tells whether the same call may succeed later, with nothing changed by anybody here.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            ProtocolError::Connect { .. }
            | ProtocolError::Broken { .. }
            | ProtocolError::NoAnswer { .. }
            | ProtocolError::UnknownBroker { .. }
            | ProtocolError::NoLeader { .. }
            | ProtocolError::Moving { .. }
            | ProtocolError::Deadline { .. } => true,
            ProtocolError::Refused { code, .. } => code.is_retriable(),
            _ => false,
        }
    }

    /// Tells whether the broker that was asked may be gone, so that another one has its tasks.
    pub(super) fn is_of_a_lost_broker(&self) -> bool {
        match self {
            ProtocolError::Connect { .. } | ProtocolError::Broken { .. } | ProtocolError::NoAnswer { .. } => {
                true
            }
            ProtocolError::OutcomeUnknown { cause, .. } => cause.is_of_a_lost_broker(),
            _ => false,
        }
    }

    /// Tells whether there was not enough time.
    pub(super) fn is_a_timeout(&self) -> bool {
        match self {
            ProtocolError::NoAnswer { .. } => true,
            ProtocolError::Connect { cause, .. } => cause.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    pub(super) fn refused(request: &str, code: ErrorCode) -> Self {
        ProtocolError::Refused { request: request.to_owned(), code, message: None }
    }
}

/// Fails where an answer carries an error code.
pub(super) fn accepted(request: &str, code: i16) -> Result<(), ProtocolError> {
    match ErrorCode::of(code) {
        None => Ok(()),
        Some(code) => Err(ProtocolError::refused(request, code)),
    }
}

fn spoken(theirs: &Option<VersionSpan>) -> impl fmt::Display {
    theirs.map_or_else(|| "no version".to_owned(), |theirs| theirs.to_string())
}

fn said(message: &Option<String>) -> impl fmt::Display {
    message.as_ref().map_or_else(String::new, |message| format!(", {message}"))
}
