//! Why a transaction cannot be resolved.

use std::sync::Arc;

use levada_core::{ErrorClass, SinkError};
use thiserror::Error;

use crate::protocol::ProtocolError;
use crate::sink::recovery::NotPrepared;

/// A transaction cannot be resolved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The brokers cannot be asked.
    #[error("cannot {doing}")]
    Protocol {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        cause: Box<ProtocolError>,
    },
    /// The records are gone.
    #[error("{transaction} was aborted, by its timeout or by somebody who took its id: its records are lost")]
    Lost {
        /// Which.
        transaction: String,
    },
    /// Nobody tells.
    #[error(
        "nobody tells what became of {transaction}: its coordinator has forgotten it, and there is no marker of it. \
         Read the topic to find out whether its records are there"
    )]
    Unknown {
        /// Which.
        transaction: String,
    },
    /// What was to be aborted is visible.
    #[error("{transaction} was to be aborted, and is committed")]
    Visible {
        /// Which.
        transaction: String,
    },
    /// We may not.
    #[error(
        "the broker does not let us end {transaction} (error code {code}): grant WRITE on its transactional id. It waits \
         until its timeout"
    )]
    Forbidden {
        /// Which.
        transaction: String,
        /// The broker's reason.
        code: i16,
    },
    /// The broker answers what it never should.
    #[error("unexpected answer to the end of {transaction}: error code {code}")]
    Unexpected {
        /// Which.
        transaction: String,
        /// The answer.
        code: i16,
    },
    /// Committed, and readers of committed data do not see it.
    #[error(
        "{transaction} is committed, but no reader of committed data sees its records in {place}, from offset {open_from} on, \
         nor anything behind them: the broker has left out their commit marker, and it cannot be written. Do NOT abort it by \
         Kafka's tool: committed records would be passed over for ever. Grant ALTER on the cluster to whoever this process is \
         for the brokers, see to it that the partition has a leader, and start again"
    )]
    Unseen {
        /// Which.
        transaction: String,
        /// In which partition.
        place: String,
        /// Its first record there.
        open_from: u64,
        /// Why its marker cannot be written.
        #[source]
        cause: Option<Arc<ProtocolError>>,
    },
    /// Committed, and nobody tells whether readers see it.
    #[error(
        "{transaction} is committed, but nobody tells whether readers of committed data see its records in {place}. Do NOT \
         abort it by Kafka's tool. Grant READ on the topic to whoever this process is for the brokers, see to it that the \
         partition has a leader, and start again"
    )]
    Unchecked {
        /// Which.
        transaction: String,
        /// In which partition.
        place: String,
        /// Why nobody tells.
        #[source]
        cause: Option<Arc<ProtocolError>>,
    },
    /// The transaction is not as it should be before its checkpoint.
    #[error("{transaction} cannot be pre-committed")]
    NotPrepared {
        /// Which.
        transaction: String,
        /// Why not.
        #[source]
        cause: NotPrepared,
    },
}

impl ResolveError {
    pub(super) fn asking(doing: &'static str) -> impl FnOnce(ProtocolError) -> Self {
        move |cause| Self::Protocol { doing, cause: Box::new(cause) }
    }

    /// Whether the same may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Protocol { cause, .. } => cause.is_retriable() || cause.is_outcome_unknown(),
            // Nothing is lost: as soon as the right is granted, or the broker is back, the same succeeds.
            Self::Unseen { .. } | Self::Unchecked { .. } => true,
            _ => false,
        }
    }
}

impl From<ResolveError> for SinkError {
    fn from(error: ResolveError) -> Self {
        let class = match &error {
            error if error.is_retriable() => ErrorClass::Reconnect,
            // Written again, from the last checkpoint on.
            ResolveError::NotPrepared { .. } => ErrorClass::Reconnect,
            // It waits, or is there: whoever takes this for a loss would lose it.
            ResolveError::Forbidden { .. }
            | ResolveError::Unexpected { .. }
            | ResolveError::Protocol { .. } => ErrorClass::Reconnect,
            _ => ErrorClass::Fatal,
        };
        SinkError::new(class, "transactions of Kafka").caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [KSK-09] [KSK-14] a sink's error that is final means, for whoever drives it, that records are gone: only what is gone is told
    /// so.
    #[test]
    fn refusal_of_a_commit_is_no_loss() {
        let transaction = || "t".to_owned();
        let class = |error: ResolveError| SinkError::from(error).class;
        for code in [31, 53] {
            assert_eq!(
                class(ResolveError::Forbidden { transaction: transaction(), code }),
                ErrorClass::Reconnect
            );
        }
        assert_eq!(
            class(ResolveError::Unexpected { transaction: transaction(), code: 9999 }),
            ErrorClass::Reconnect
        );
        assert_eq!(class(ResolveError::Lost { transaction: transaction() }), ErrorClass::Fatal);
        assert_eq!(class(ResolveError::Unknown { transaction: transaction() }), ErrorClass::Fatal);
    }
}
