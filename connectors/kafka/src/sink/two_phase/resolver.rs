//! Finding out about transactions and ending them, by their handles alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use levada_core::template::Fate;
use levada_core::{CheckpointId, Clock, ErrorClass, SinkError, Timestamp};
use thiserror::Error;
use tokio::time::Instant;

use crate::protocol::{Admin, Initialised, ProtocolError};
use crate::sink::recovery::{
    AbortSettled, Answer, CommitSettled, Description, Evidence, Marker, NotPrepared, Terms,
    TransactionHandle, TransactionNaming, TransactionState, answer, check_prepared, fate, settled_abort,
    settled_commit, to_fence,
};

/// How long one step may take, retries included.
const WITHIN: Duration = Duration::from_secs(30);
/// So many coordinators are asked at once.
const AT_ONCE: usize = 16;
/// For how long brokers keep the offsets of a group without members, unless they say otherwise.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

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
    /// The coordinator goes on refusing.
    #[error("{transaction} is not ended within {within:?}: the coordinator answers error code {code}")]
    Unfinished {
        /// Which.
        transaction: String,
        /// For how long it was tried.
        within: Duration,
        /// The last answer.
        code: i16,
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
    fn asking(doing: &'static str) -> impl FnOnce(ProtocolError) -> Self {
        move |cause| Self::Protocol { doing, cause: Box::new(cause) }
    }

    /// Whether the same may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Protocol { cause, .. } => cause.is_retriable(),
            Self::Unfinished { .. } => true,
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
            _ => ErrorClass::Fatal,
        };
        SinkError::new(class, "transactions of Kafka").caused_by(error)
    }
}

/// Asks about transactions, and commits, aborts and fences them.
#[derive(Debug)]
pub struct Resolver {
    admin: Arc<Admin>,
    naming: TransactionNaming,
    clock: Arc<dyn Clock>,
    margin: Duration,
}

/// What this process has begun, by transactional id: a fence of the same attempt spares what is younger.
static BEGUN: Mutex<BTreeMap<String, CheckpointId>> = Mutex::new(BTreeMap::new());

impl Resolver {
    /// Makes one for the transactions of one sink of one job. `margin` is how much of its timeout must be left to a
    /// transaction for it to be committed.
    pub fn new(
        admin: Arc<Admin>,
        naming: TransactionNaming,
        clock: Arc<dyn Clock>,
        margin: Duration,
    ) -> Self {
        Self { admin, naming, clock, margin }
    }

    fn terms(&self) -> Terms {
        Terms { now: self.clock.now(), margin: self.margin }
    }

    /// The group whose offsets are the markers of a subtask.
    pub(super) fn marker_group(&self, subtask: u32) -> String {
        self.naming.marker_group(subtask)
    }

    /// Notes what is begun in this process, for [`fence`](Self::fence).
    pub(super) fn note_begun(&self, id: &str, checkpoint: CheckpointId) {
        BEGUN.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), checkpoint);
    }

    /// Forgets it, once it is decided.
    pub(super) fn note_decided(&self, id: &str) {
        BEGUN.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// [KSK-08] Checks that a transaction waits as it should. Returns when it began, by the broker's clock.
    pub(super) async fn prepared(&self, handle: &TransactionHandle) -> Result<Timestamp, ResolveError> {
        let described = self.admin.describe(&handle.transactional_id, WITHIN).await;
        let description =
            described.map_err(ResolveError::asking("ask whether a transaction waits for its commit"))?;
        check_prepared(handle, &description, self.terms())
            .map_err(|cause| ResolveError::NotPrepared { transaction: handle.to_string(), cause })
    }

    /// Tells what became of each transaction, in the order of `handles`. Changes nothing.
    ///
    /// # Errors
    /// The brokers cannot be asked.
    pub async fn inspect(&self, handles: &[TransactionHandle]) -> Result<Vec<Fate>, ResolveError> {
        let asked = Duration::min(WITHIN, self.margin.max(Duration::from_secs(5)));
        let cluster = self.admin.cluster(asked).await.map_err(ResolveError::asking("ask for the cluster"))?;
        let retention = self.retention(&cluster.brokers).await;
        let mut fates = Vec::with_capacity(handles.len());
        for some in handles.chunks(AT_ONCE) {
            let asked = some.iter().map(|handle| self.fate_of(handle, cluster.id.clone(), retention));
            fates.extend(try_join_all(asked).await?);
        }
        Ok(fates)
    }

    async fn retention(&self, brokers: &[crate::protocol::BrokerAddress]) -> Duration {
        let Some(broker) = brokers.first() else { return Duration::ZERO };
        match self.admin.broker_setting(broker, "offsets.retention.minutes", WITHIN).await {
            Ok(Some(minutes)) => Duration::from_secs(u64::try_from(minutes).unwrap_or(0) * 60),
            Ok(None) => RETENTION,
            Err(error) => {
                // Then a marker that is missing proves nothing.
                tracing::debug!(error = %levada_core::ErrorChain(&error), "the retention of offsets is not told");
                Duration::ZERO
            }
        }
    }

    async fn fate_of(
        &self,
        handle: &TransactionHandle,
        cluster_id: String,
        retention: Duration,
    ) -> Result<Fate, ResolveError> {
        if handle.records == 0 {
            // Nothing was written: there is nothing to lose or to double, whatever is decided.
            return Ok(Fate::Pending);
        }
        let asking = ResolveError::asking("ask what became of a transaction");
        let description = self.admin.describe(&handle.transactional_id, WITHIN).await.map_err(asking)?;
        let silent = Evidence { cluster_id, description, marker: Marker::Silent };
        let told = fate(handle, &silent, self.terms());
        if told != Fate::Unknown {
            return Ok(told);
        }
        let marker = self.marker(handle, retention).await?;
        Ok(fate(handle, &Evidence { marker, ..silent }, self.terms()))
    }

    /// [KSK-15] Reads the newest marker of the subtask that wrote a transaction, where it would be.
    async fn marker(&self, handle: &TransactionHandle, retention: Duration) -> Result<Marker, ResolveError> {
        let Some((topic, partition)) = marked_partition(handle) else { return Ok(Marker::Silent) };
        let group = self.marker_group(handle.subtask);
        let read = self.admin.committed(&group, &topic, partition, WITHIN).await;
        match read.map_err(ResolveError::asking("read the marker of a transaction"))? {
            Some((sequence, attempt)) => Ok(marker_of(sequence, &attempt)),
            None => {
                let age = handle.start.map(|start| self.clock.now().since(start));
                Ok(if age.is_some_and(|age| age < retention) { Marker::Never } else { Marker::Silent })
            }
        }
    }

    /// [KSK-09] Commits a transaction. Succeeds if it is committed already.
    ///
    /// # Errors
    /// It was aborted, nobody tells, or it cannot be done within 30 s.
    ///
    /// # Cancel safety
    /// After a drop it may be committed or not; the same call finds out.
    pub async fn commit(&self, handle: &TransactionHandle) -> Result<(), ResolveError> {
        if handle.records == 0 {
            return Ok(());
        }
        self.end(handle, true).await
    }

    /// Aborts a transaction. Succeeds if it is aborted already, or was never there.
    ///
    /// # Errors
    /// It is committed, or it cannot be done within 30 s.
    ///
    /// # Cancel safety
    /// After a drop it may be aborted or not; the same call finds out.
    pub async fn abort(&self, handle: &TransactionHandle) -> Result<(), ResolveError> {
        self.end(handle, false).await
    }

    /// Whether a transaction has ended as it was asked to, where the coordinator refuses; `false`: ask again.
    async fn has_ended(&self, handle: &TransactionHandle, commit: bool) -> Result<bool, ResolveError> {
        let fates = self.inspect(std::slice::from_ref(handle)).await?;
        let fate = fates.first().copied().unwrap_or(Fate::Unknown);
        let transaction = || handle.to_string();
        if !commit {
            return match settled_abort(fate) {
                AbortSettled::Done => Ok(true),
                AbortSettled::Again => Ok(false),
                AbortSettled::Visible => Err(ResolveError::Visible { transaction: transaction() }),
            };
        }
        match settled_commit(fate) {
            CommitSettled::Done => Ok(true),
            CommitSettled::Again => Ok(false),
            CommitSettled::Lost => Err(ResolveError::Lost { transaction: transaction() }),
            CommitSettled::Unknown => Err(ResolveError::Unknown { transaction: transaction() }),
        }
    }

    /// Sends the end until it is through.
    async fn end(&self, handle: &TransactionHandle, commit: bool) -> Result<(), ResolveError> {
        let until = Instant::now() + WITHIN;
        let mut pauses = crate::protocol::Pauses::until(until);
        let producer = Initialised { producer_id: handle.producer_id, epoch: handle.epoch };
        let transaction = || handle.to_string();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let sent = self.admin.end_transaction(&handle.transactional_id, producer, commit, left).await;
            let last = match sent {
                Err(error) if !error.is_retriable() => {
                    return Err(ResolveError::asking("end a transaction")(error));
                }
                Err(error) => Err(error),
                Ok(code) => match answer(code.0) {
                    Answer::Done => return Ok(()),
                    Answer::Ask if self.has_ended(handle, commit).await? => return Ok(()),
                    Answer::Forbidden => {
                        return Err(ResolveError::Forbidden { transaction: transaction(), code: code.0 });
                    }
                    Answer::Unexpected(code) => {
                        return Err(ResolveError::Unexpected { transaction: transaction(), code });
                    }
                    _ => Ok(code),
                },
            };
            if !pauses.next().await {
                return Err(match last {
                    Ok(code) => {
                        ResolveError::Unfinished { transaction: transaction(), within: WITHIN, code: code.0 }
                    }
                    Err(error) => ResolveError::asking("end a transaction")(error),
                });
            }
        }
    }

    /// [KSK-17] Initialises every id of this sink that an earlier attempt has left and none of `kept` names.
    ///
    /// # Errors
    /// The brokers cannot be asked, or refuse.
    pub async fn fence(
        &self,
        first: CheckpointId,
        kept: &[TransactionHandle],
        timeout: Duration,
    ) -> Result<(), ResolveError> {
        let doing = "list the transactions that are left over";
        let listed = self.admin.list(|id| self.naming.slot_of(id).is_some(), WITHIN).await;
        let listed = listed.map_err(ResolveError::asking(doing))?;
        // What is complete can neither be written to nor ended: late writes to it are refused.
        let is_complete =
            |state| matches!(state, TransactionState::CompleteCommit | TransactionState::CompleteAbort);
        let open = listed.iter().filter(|listed| !is_complete(listed.state));
        let begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ids = open.map(|listed| listed.transactional_id.as_str());
        let left_over = to_fence(&self.naming, ids, first, kept, &begun);
        for some in left_over.chunks(AT_ONCE) {
            let fenced = some.iter().map(|id| self.admin.initialise(id, timeout, WITHIN));
            let doing = "fence a transactional id that was left over";
            try_join_all(fenced).await.map_err(ResolveError::asking(doing))?;
        }
        Ok(())
    }

    /// Describes an id that nobody has: whether this broker can be asked at all.
    pub(super) async fn probe(&self) -> Result<String, ResolveError> {
        let cluster =
            self.admin.cluster(WITHIN).await.map_err(ResolveError::asking("ask for the cluster"))?;
        let description = self.admin.describe(&self.naming.probe(), WITHIN).await;
        match description.map_err(ResolveError::asking("ask what became of transactions"))? {
            Description::NotFound | Description::Found(_) => Ok(cluster.id),
        }
    }

    /// The broker's bound for the timeout of transactions, if it tells.
    pub(super) async fn longest_timeout(&self) -> Result<Option<Duration>, ResolveError> {
        let asking = || ResolveError::asking("ask for the longest timeout of transactions");
        let cluster = self.admin.cluster(WITHIN).await.map_err(asking())?;
        let Some(broker) = cluster.brokers.first() else { return Ok(None) };
        let told = self.admin.broker_setting(broker, "transaction.max.timeout.ms", WITHIN).await;
        let told = told.map_err(asking())?;
        Ok(told.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis))
    }
}

/// The partition of a transaction whose group offset is its marker: the first.
pub(super) fn marked_partition(handle: &TransactionHandle) -> Option<(String, i32)> {
    let (topic, partitions) = handle.partitions.iter().next()?;
    Some((topic.clone(), *partitions.iter().next()?))
}

/// An offset has the sequence of a checkpoint, and the attempt in its metadata. What is not ours tells nothing.
fn marker_of(sequence: i64, attempt: &str) -> Marker {
    match (u64::try_from(sequence), attempt.parse()) {
        (Ok(sequence), Ok(attempt)) => Marker::At(CheckpointId { attempt, sequence }),
        _ => Marker::Silent,
    }
}
