//! What can go wrong.

use levada_core::ErrorClass;
use thiserror::Error;

use super::misuse::Misuse;
use crate::protocol::{ConfigError, ProtocolError};
use crate::sink::producing::{ProduceError, SinkConfigError};
use crate::sink::recovery::{NameError, TransactionHandle};
use crate::sink::two_phase::{ResolveError, StartError};

/// A transactional writer cannot do what it was asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriterError {
    /// The call cannot be meant; nothing was changed.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] SinkConfigError),
    /// Prefix and name make no transactional ids.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Coordinators cannot be reached in the way that the properties say.
    #[error("the coordinators of transactions cannot be reached by these properties")]
    Connect(#[source] ConfigError),
    /// The cluster cannot keep what is promised.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Writing failed.
    #[error(transparent)]
    Produce(#[from] ProduceError),
    /// A transaction cannot be committed, aborted or asked about.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Brokers cannot be asked.
    #[error("cannot {doing}")]
    Protocol {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        cause: Box<ProtocolError>,
    },
    /// Some are visible and some gone for good; nothing was changed.
    #[error(
        "of {} transactions {} are visible ({}) and {} gone ({}): choose by `TornPolicy` whether the first are published again or \
         the others are done without",
        .visible.len() + .gone.len(), .visible.len(), named(.visible), .gone.len(), named(.gone)
    )]
    Torn {
        /// Which are visible.
        visible: Vec<TransactionHandle>,
        /// Which are gone.
        gone: Vec<TransactionHandle>,
    },
    /// Nobody tells what became of some; nothing was changed.
    #[error(
        "nobody tells what became of {}: their coordinators have forgotten them, and there are no markers. Read the topics to \
         find out; then strike out those that are there",
        named(.transactions)
    )]
    Unknown {
        /// Which.
        transactions: Vec<TransactionHandle>,
    },
}

impl WriterError {
    pub(super) fn asking(doing: &'static str) -> impl FnOnce(ProtocolError) -> Self {
        move |cause| Self::Protocol { doing, cause: Box::new(cause) }
    }

    /// Tells whether the same call may succeed later. Behind a failed `send` or `prepare` that is [`discard`] and a new begin.
    ///
    /// [`discard`]: super::TransactionalWriter::discard
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Produce(error) => matches!(error.class(), ErrorClass::Retry | ErrorClass::Reconnect),
            Self::Resolve(error) => error.is_retriable(),
            Self::Start(error) => error.is_retriable(),
            Self::Protocol { cause, .. } => cause.is_retriable() || cause.is_outcome_unknown(),
            _ => false,
        }
    }

    /// Tells whether records of a prepared transaction are gone for good, by its timeout or because somebody took its id.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Resolve(ResolveError::Lost { .. }))
    }
}

fn named(handles: &[TransactionHandle]) -> String {
    if handles.is_empty() {
        return "none of them".to_owned();
    }
    handles.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
