//! What can go wrong between us and a broker.

use std::fmt;
use std::io;
use std::time::Duration;

use kafka_protocol::ResponseError;
use thiserror::Error;

use super::security::SecurityError;
use super::versions::BrokerTooOld;

/// An error code of Kafka's protocol. Prints its name: `NotCoordinator (16)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// Whoever asks finds out who coordinates, or waits until it is ready.
    pub(super) const fn is_about_the_coordinator(self) -> bool {
        // Loading, not available, not coordinator, and the broker's own time-out.
        matches!(self.0, 7 | 14 | 15 | 16)
    }

    /// Whether the protocol says that the same question may have another answer soon.
    pub fn is_retriable(self) -> bool {
        ResponseError::try_from_code(self.0).is_some_and(|error| error.is_retriable())
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ResponseError::try_from_code(self.0) {
            None => write!(f, "no error (0)"),
            Some(ResponseError::Unknown(code)) => write!(f, "error code {code}"),
            Some(error) => write!(f, "{error:?} ({})", self.0),
        }
    }
}

/// A question has no answer, or a refusal.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The configuration of the connection cannot work.
    #[error("the connection to Kafka is not configured well")]
    Security(#[from] SecurityError),
    /// No connection.
    #[error("cannot connect to {address}")]
    Connect {
        /// Where to.
        address: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// No TLS session.
    #[error("cannot make a TLS session with {address}")]
    Tls {
        /// With whom.
        address: String,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The request went out, and no answer came in time.
    #[error("{address} has not answered {api} within {within:?}")]
    NoAnswer {
        /// Who was asked.
        address: String,
        /// What for.
        api: &'static str,
        /// How long it was waited for.
        within: Duration,
    },
    /// The connection broke while the request was sent or its answer waited for.
    #[error("the connection to {address} broke under {api}")]
    Lost {
        /// Who was asked.
        address: String,
        /// What for.
        api: &'static str,
        /// How it broke.
        #[source]
        cause: io::Error,
    },
    /// What came is no answer.
    #[error("{address} answers {api} with what is no answer: {reason}")]
    Malformed {
        /// Who was asked.
        address: String,
        /// What for.
        api: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The broker does not know the request, or not in a version that we can use.
    #[error("{address} is too old or too new")]
    TooOld {
        /// Who was asked.
        address: String,
        /// What is missing.
        #[source]
        cause: BrokerTooOld,
    },
    /// The broker refuses.
    #[error("{address} refuses {api} for {subject}: {code}")]
    Refused {
        /// Who was asked.
        address: String,
        /// What for.
        api: &'static str,
        /// About what.
        subject: String,
        /// Its reason.
        code: ErrorCode,
    },
    /// The answer says nothing about what was asked.
    #[error("{address} answers {api} without a word about {subject}")]
    Silent {
        /// Who was asked.
        address: String,
        /// What for.
        api: &'static str,
        /// About what.
        subject: String,
    },
    /// It was tried until the deadline.
    #[error("{api} was tried for {within:?} without success")]
    OutOfTime {
        /// What was asked for.
        api: &'static str,
        /// For how long.
        within: Duration,
        /// How it ended the last time.
        #[source]
        cause: Box<ProtocolError>,
    },
}

impl ProtocolError {
    /// Whether the request may have been obeyed all the same: it was sent, and what came of it nobody has told.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::Lost { .. } | Self::Malformed { .. } => true,
            Self::OutOfTime { cause, .. } => cause.is_outcome_unknown(),
            _ => false,
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::NoAnswer { .. } | Self::Lost { .. } | Self::OutOfTime { .. } => true,
            // A broker that restarts may close a session half way; what is wrong with certificates stays wrong.
            Self::Tls { cause, .. } => cause.kind() != io::ErrorKind::InvalidData,
            Self::Refused { code, .. } => code.is_retriable() || code.is_about_the_coordinator(),
            _ => false,
        }
    }

    /// The broker's reason, where it has refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::OutOfTime { cause, .. } => cause.code(),
            _ => None,
        }
    }

    /// Whether whoever is in charge is to be looked for anew before the next try.
    pub(super) fn is_about_who_is_in_charge(&self) -> bool {
        match self {
            // 3, 5, 6: the topic is not known there, has no leader, is led by another.
            Self::Refused { code, .. } => code.is_about_the_coordinator() || matches!(code.0, 3 | 5 | 6),
            Self::Connect { .. } | Self::Tls { .. } | Self::NoAnswer { .. } | Self::Lost { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i16) -> ProtocolError {
        let (address, subject) = ("b:9092".to_owned(), "id".to_owned());
        ProtocolError::Refused { address, api: "EndTxn", subject, code: ErrorCode(code) }
    }

    #[test]
    fn codes_have_names() {
        assert_eq!(ErrorCode(16).to_string(), "NotCoordinator (16)");
        assert_eq!(ErrorCode(9_999).to_string(), "error code 9999");
    }

    /// [KSK-21] only what was sent and not answered leaves the outcome open.
    #[test]
    fn outcome_is_unknown_only_behind_a_request_that_was_sent() {
        let lost = || ProtocolError::Lost {
            address: "b:9092".to_owned(),
            api: "EndTxn",
            cause: io::ErrorKind::UnexpectedEof.into(),
        };
        assert!(lost().is_outcome_unknown());
        let out = ProtocolError::OutOfTime { api: "EndTxn", within: Duration::ZERO, cause: Box::new(lost()) };
        assert!(out.is_outcome_unknown() && out.is_retriable());
        assert!(!refused(48).is_outcome_unknown() && !refused(48).is_retriable());
        assert!(refused(16).is_retriable() && refused(16).is_about_who_is_in_charge());
        let cause = io::ErrorKind::ConnectionRefused.into();
        assert!(!ProtocolError::Connect { address: "b:9092".to_owned(), cause }.is_outcome_unknown());
    }
}
