//! Why a lookup has no answer.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use levada_core::ErrorClass;

use crate::quote::IdentifierError;
use crate::sink::error::Failure;

/// The cause of a failure, shared by all who waited for the same query.
pub type SharedCause = Arc<dyn Error + Send + Sync + 'static>;

/// A lookup failed. Holds no value of a key or a row.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The configuration is not complete, or contradicts itself.
    #[error("the lookup is configured wrongly: {0}")]
    Config(String),
    /// A name cannot be an identifier.
    #[error("the lookup is configured wrongly")]
    Name(#[from] IdentifierError),
    /// The configuration does not fit what the server has.
    #[error("{0}")]
    Unfit(String),
    /// The key has another number of parts than the lookup.
    #[error("the key has {found} parts, the lookup of {target} takes {expected}")]
    Parts {
        /// What is looked up.
        target: Arc<str>,
        /// How many parts it takes.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// A part of the key cannot be a value of its column.
    #[error("key part {part:?} of {target}: {problem}")]
    Key {
        /// What is looked up.
        target: Arc<str>,
        /// The column or parameter.
        part: Arc<str>,
        /// What is wrong; names classes and types, no value.
        problem: String,
    },
    /// There was no answer in time. The query was cancelled, or its answer will be dropped.
    #[error("no answer about {target} within {within:?}, {attempts} sent")]
    Timeout {
        /// What is looked up.
        target: Arc<str>,
        /// The limit.
        within: Duration,
        /// How often the query was sent.
        attempts: u32,
    },
    /// No connection had room in time.
    #[error(
        "the pool of {target} is exhausted: no room within {within:?} on {connections} connections of {each} calls, \
         {draining} of them wait for a call that was given up"
    )]
    Exhausted {
        /// What is looked up.
        target: Arc<str>,
        /// How long was waited.
        within: Duration,
        /// The most connections.
        connections: usize,
        /// The most calls on each.
        each: usize,
        /// How many take no calls.
        draining: usize,
    },
    /// No connection could be made in time.
    #[error("cannot connect for the lookup of {target}")]
    Unreachable {
        /// What is looked up.
        target: Arc<str>,
        /// What can be done about it.
        class: ErrorClass,
        /// The last attempt's failure.
        #[source]
        cause: SharedCause,
    },
    /// The server refused the query.
    #[error("lookup of {target}")]
    Server {
        /// What is looked up.
        target: Arc<str>,
        /// What can be done about it; [`ErrorClass::BadRecord`] when it is this key's fault.
        class: ErrorClass,
        /// The SQLSTATE, where the server gave one.
        sqlstate: Option<Box<str>>,
        /// The server's error without any value.
        #[source]
        cause: SharedCause,
    },
    /// No row matches, and exactly one was asked for.
    #[error("no row of {target} matches the key, and exactly one was asked for")]
    NoMatch {
        /// What is looked up.
        target: Arc<str>,
    },
    /// More than one row matches, and exactly one was asked for.
    #[error("more than one row of {target} matches the key, and exactly one was asked for")]
    Ambiguous {
        /// What is looked up.
        target: Arc<str>,
    },
    /// A column's bytes were not what its type says.
    #[error("column {column:?} of {target} cannot be read")]
    Undecodable {
        /// What is looked up.
        target: Arc<str>,
        /// The column.
        column: Arc<str>,
    },
    /// The task that looked it up is gone: the runtime is being shut down.
    #[error("the lookup of {target} was stopped")]
    Stopped {
        /// What is looked up.
        target: Arc<str>,
    },
}

impl LookupError {
    /// Tells what can be done about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Config(_) | Self::Name(_) | Self::Unfit(_) | Self::Parts { .. } => ErrorClass::Fatal,
            Self::Undecodable { .. } => ErrorClass::Fatal,
            Self::Key { .. } | Self::NoMatch { .. } | Self::Ambiguous { .. } => ErrorClass::BadRecord,
            Self::Timeout { .. } | Self::Exhausted { .. } | Self::Stopped { .. } => ErrorClass::Retry,
            Self::Unreachable { class, .. } | Self::Server { class, .. } => *class,
        }
    }

    /// Tells whether the same lookup may succeed later, with nothing changed on this side.
    pub fn is_retriable(&self) -> bool {
        self.class().is_retriable()
    }

    /// Returns the SQLSTATE, where the server gave one.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Server { sqlstate, .. } => sqlstate.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn server(target: &Arc<str>, failure: Failure) -> Self {
        Self::Server {
            target: Arc::clone(target),
            class: failure.class,
            sqlstate: failure.code,
            cause: Arc::new(*failure.cause),
        }
    }

    pub(crate) fn unreachable(target: &Arc<str>, failure: Failure) -> Self {
        Self::Unreachable {
            target: Arc::clone(target),
            class: failure.class,
            cause: Arc::new(*failure.cause),
        }
    }
}
