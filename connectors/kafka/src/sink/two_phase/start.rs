//! Whether a cluster can keep what the sink promises, before anything is written.

use std::sync::Arc;
use std::time::Duration;

use levada_core::{ErrorClass, SinkError};
use thiserror::Error;

use super::error::ResolveError;
use super::resolver::Resolver;
use crate::protocol::{ErrorCode, Look, ProtocolError, TransactionAdmin as _};

/// Exactly once cannot be had here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The brokers do not answer, or do not let us in.
    #[error(
        "the brokers cannot be asked about transactions, and a commit after a crash needs that: it is a connection of its \
         own, with the same security settings as the producer's"
    )]
    Unreachable(#[source] Box<ProtocolError>),
    /// A broker lacks a request.
    #[error(
        "exactly once needs Kafka 3.0 or later on every broker: without this request, nobody can tell after a crash whether a \
         transaction waits for its commit, and records would be lost or written twice. Upgrade the brokers, or write at least \
         once"
    )]
    TooOld(#[source] Box<ProtocolError>),
    /// The transactions' timeout is above the brokers' bound.
    #[error(
        "the transaction timeout of {ours:?} is above the brokers' transaction.max.timeout.ms{}. It has to be at most that, \
         and at least the checkpoint interval, the checkpoint's timeout and the longest outage together after which a restart \
         shall still commit: raise the brokers' bound, or lower ours and one of these",
        told(.longest)
    )]
    TimeoutTooLong {
        /// Ours.
        ours: Duration,
        /// Theirs, if they tell.
        longest: Option<Duration>,
    },
    /// The ids may not be used.
    #[error(
        "transactional ids beginning with {head} may not be used: grant WRITE and DESCRIBE on them by their prefix, to \
         whoever this process is for the brokers"
    )]
    Forbidden {
        /// How our ids begin.
        head: String,
        /// The broker's answer.
        #[source]
        cause: Box<ProtocolError>,
    },
    /// A topic that was named is not there, or may not be described.
    #[error("topic {topic} cannot be written to: it must exist, and WRITE on it must be granted")]
    Topic {
        /// Its name.
        topic: String,
        /// The broker's answer.
        #[source]
        cause: Box<ProtocolError>,
    },
    /// A topic that was named may not be read.
    #[error(
        "topic {topic} may not be read: grant READ on it. Without it nobody can tell whether readers see what was committed; \
         Kafka leaves out commit markers of partitions without a leader"
    )]
    Unreadable {
        /// Its name.
        topic: String,
        /// The broker's answer.
        #[source]
        cause: Arc<ProtocolError>,
    },
    /// Something else is wrong with asking.
    #[error("the brokers cannot be asked about transactions")]
    Resolve(#[from] ResolveError),
}

fn told(longest: &Option<Duration>) -> String {
    longest.map_or_else(String::new, |longest| format!(", {longest:?}"))
}

impl StartError {
    /// Whether the same may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            StartError::Unreachable(cause) => cause.is_retriable() || cause.is_outcome_unknown(),
            StartError::Resolve(cause) => cause.is_retriable(),
            _ => false,
        }
    }

    fn of_connecting(cause: ProtocolError) -> Self {
        match cause {
            ProtocolError::Unsupported { .. } => StartError::TooOld(Box::new(cause)),
            cause => StartError::Unreachable(Box::new(cause)),
        }
    }
}

impl From<StartError> for SinkError {
    fn from(error: StartError) -> Self {
        let class = if error.is_retriable() { ErrorClass::Reconnect } else { ErrorClass::Fatal };
        SinkError::new(class, "exactly once into Kafka").caused_by(error)
    }
}

impl Resolver {
    /// [KSK-19] Connects to every broker, and looks whether all of them speak what recovery needs, whether transactions may
    /// last as long as ours, and whether ids and topics may be used. Returns the cluster's id.
    ///
    /// One id that no slot has is initialised: that is how a broker tells whether ids may be, for so long.
    pub(in crate::sink) async fn check_start(
        &self,
        timeout: Duration,
        topics: &[String],
    ) -> Result<String, StartError> {
        let cluster = self.admin.check_brokers(self.within).await.map_err(StartError::of_connecting)?;
        self.check_timeout(timeout).await?;
        self.check_ids(timeout).await?;
        for topic in topics {
            let found = self.admin.cluster(&[topic], self.within).await;
            found.map_err(|cause| match cause {
                cause if cause.is_retriable() => StartError::Unreachable(Box::new(cause)),
                cause => StartError::Topic { topic: topic.clone(), cause: Box::new(cause) },
            })?;
        }
        self.check_reading(topics).await?;
        Ok(cluster.id)
    }

    /// Behind each commit leaders are asked whether it is seen. Those that do not answer now may do so then.
    async fn check_reading(&self, topics: &[String]) -> Result<(), StartError> {
        if topics.is_empty() {
            return Ok(());
        }
        let firsts = topics.iter().map(|topic| (topic.clone(), [0].into())).collect();
        let looks = self.admin.look_at(&firsts, self.within).await.map_err(StartError::of_connecting)?;
        for ((topic, _), look) in looks {
            if let Look::Silent(cause) = look
                && cause.code() == Some(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
            {
                return Err(StartError::Unreadable { topic, cause });
            }
        }
        Ok(())
    }

    /// The broker refuses a longer one when an id is initialised, and tells no bound then.
    async fn check_timeout(&self, ours: Duration) -> Result<(), StartError> {
        match self.longest_timeout().await {
            Ok(Some(longest)) if ours > longest => {
                Err(StartError::TimeoutTooLong { ours, longest: Some(longest) })
            }
            Err(error) if error.is_retriable() => Err(error.into()),
            Err(error) => {
                // Whoever may not read the brokers' settings may write all the same: the next step asks in another way.
                tracing::debug!(error = %levada_core::ErrorChain(&error), "the longest timeout is not told");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    async fn check_ids(&self, timeout: Duration) -> Result<(), StartError> {
        let probe = self.naming.probe();
        let forbidden = |cause: ProtocolError| StartError::Forbidden {
            head: probe.trim_end_matches("probe").to_owned(),
            cause: Box::new(cause),
        };
        let refused = |cause: ProtocolError| match cause.code() {
            Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED) => forbidden(cause),
            Some(ErrorCode::INVALID_TRANSACTION_TIMEOUT) => {
                StartError::TimeoutTooLong { ours: timeout, longest: None }
            }
            _ => StartError::Unreachable(Box::new(cause)),
        };
        self.admin.describe(&[&probe], self.within).await.map_err(refused)?;
        self.admin.fence(&probe, timeout, self.within).await.map_err(refused)?;
        Ok(())
    }
}
