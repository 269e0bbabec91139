//! Finding out about transactions and ending them, by their handles alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{Sleeper as _, TokioSleeper};
use futures_util::future::try_join_all;
use levada_core::template::Fate;
use levada_core::{CheckpointId, Clock, Timestamp};
use tokio::time::Instant;

use super::error::ResolveError;
use crate::failpoint::fail_point;
use crate::protocol::{
    Described, Ending, ErrorCode, Listed, ProtocolClient, ProtocolError, State, TransactionAdmin as _,
    TransactionKey,
};
use crate::sink::metrics::SinkMetrics;
use crate::sink::recovery::{
    AbortSettled, Answer, CommitSettled, DescribedTransaction, Description, Evidence, Marker, Terms,
    TransactionHandle, TransactionNaming, TransactionState, answer, check_prepared, fate, settled_abort,
    settled_commit, to_fence,
};

/// How long one step may take, retries included, unless told otherwise.
const WITHIN: Duration = Duration::from_secs(30);
/// Before the end of a transaction is sent again: markers are written in milliseconds.
const PAUSE: Duration = Duration::from_millis(50);
/// For how long a marker is waited for that is being decided: as above, or not at all.
const DECIDED_WITHIN: Duration = Duration::from_secs(5);
/// So many coordinators are asked at once.
const AT_ONCE: usize = 16;
/// For how long brokers keep the offsets of a group without members, unless they say otherwise.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Asks about transactions, and commits, aborts and fences them.
#[derive(Debug, Clone)]
pub struct Resolver {
    pub(super) admin: ProtocolClient,
    pub(super) naming: TransactionNaming,
    clock: Arc<dyn Clock>,
    margin: Duration,
    pub(super) within: Duration,
    pub(super) metrics: SinkMetrics,
}

/// What this process has begun, by transactional id: a fence of the same attempt spares what is younger.
static BEGUN: Mutex<BTreeMap<String, CheckpointId>> = Mutex::new(BTreeMap::new());

impl Resolver {
    /// Makes one for the transactions of one sink of one job. `margin` is how much of its timeout must be left to a
    /// transaction for it to be committed.
    pub fn new(
        admin: ProtocolClient,
        naming: TransactionNaming,
        clock: Arc<dyn Clock>,
        margin: Duration,
    ) -> Self {
        Self { admin, naming, clock, margin, within: WITHIN, metrics: SinkMetrics::new() }
    }

    /// Sets how long one step may take, retries included; 30 s unless set.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Sets where it counts what it does; an account of its own unless set.
    #[must_use]
    pub fn metrics(mut self, metrics: SinkMetrics) -> Self {
        self.metrics = metrics;
        self
    }

    fn terms(&self) -> Terms {
        Terms { now: self.clock.now(), margin: self.margin }
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
    pub(in crate::sink) async fn prepared(
        &self,
        handle: &TransactionHandle,
    ) -> Result<Timestamp, ResolveError> {
        let doing = "ask whether a transaction waits for its commit";
        let description = self.describe(&handle.transactional_id, doing).await?;
        check_prepared(handle, &description, self.terms())
            .map_err(|cause| ResolveError::NotPrepared { transaction: handle.to_string(), cause })
    }

    async fn describe(&self, id: &str, doing: &'static str) -> Result<Description, ResolveError> {
        let mut told = self.admin.describe(&[id], self.within).await.map_err(ResolveError::asking(doing))?;
        Ok(told
            .remove(id)
            .flatten()
            .map_or(Description::NotFound, |found| Description::Found(described(found))))
    }

    /// Tells what became of each transaction, in the order of `handles`. Changes nothing.
    ///
    /// # Errors
    /// The brokers cannot be asked.
    pub async fn inspect(&self, handles: &[TransactionHandle]) -> Result<Vec<Fate>, ResolveError> {
        fail_point!("kafka::inspect::before");
        let cluster = self
            .admin
            .cluster(&[], self.within)
            .await
            .map_err(ResolveError::asking("ask for the cluster"))?;
        let retention = self.retention().await;
        let mut fates = Vec::with_capacity(handles.len());
        for some in handles.chunks(AT_ONCE) {
            let asked = some.iter().map(|handle| self.fate_of(handle, &cluster.id, retention));
            fates.extend(try_join_all(asked).await?);
        }
        handles.iter().zip(&fates).for_each(|(handle, fate)| self.note_found(handle, *fate));
        fail_point!("kafka::inspect::after");
        Ok(fates)
    }

    fn note_found(&self, handle: &TransactionHandle, fate: Fate) {
        if handle.records > 0 && matches!(fate, Fate::Pending | Fate::Expiring) {
            let since = handle.start.unwrap_or_else(|| self.clock.now());
            self.metrics.note_found(&handle.transactional_id, since, finite(handle.timeout), handle.records);
        }
    }

    /// How long brokers keep the offsets of a group without members; nothing where they do not tell, for then a marker that is
    /// missing proves nothing.
    async fn retention(&self) -> Duration {
        match self.smallest_setting("offsets.retention.minutes").await {
            Ok(told) => told.map_or(RETENTION, |minutes| Duration::from_secs(minutes * 60)),
            Err(error) => {
                tracing::debug!(error = %levada_core::ErrorChain(&error), "the retention of offsets is not told");
                Duration::ZERO
            }
        }
    }

    async fn smallest_setting(&self, name: &'static str) -> Result<Option<u64>, ProtocolError> {
        let told = self.admin.broker_settings(&[name], self.within).await?;
        let values = told.values().filter_map(|settings| settings.get(name)?.as_ref()?.parse().ok());
        Ok(values.min())
    }

    async fn fate_of(
        &self,
        handle: &TransactionHandle,
        cluster_id: &str,
        retention: Duration,
    ) -> Result<Fate, ResolveError> {
        // Nothing was written: there is nothing to lose or to double, whatever is decided.
        if handle.records == 0 { Ok(Fate::Pending) } else { self.found(handle, cluster_id, retention).await }
    }

    async fn found(
        &self,
        handle: &TransactionHandle,
        cluster_id: &str,
        retention: Duration,
    ) -> Result<Fate, ResolveError> {
        let cluster_id = cluster_id.to_owned();
        // Nobody else's silence is asked for.
        if cluster_id != handle.cluster_id {
            return Ok(Fate::Unknown);
        }
        let description = self.describe(&handle.transactional_id, "ask what became of a transaction").await?;
        let silent = Evidence { cluster_id, description, marker: Marker::Silent };
        let told = fate(handle, &silent, self.terms());
        if told != Fate::Unknown {
            return Ok(told);
        }
        let marker = self.marker(handle, retention).await?;
        Ok(fate(handle, &Evidence { marker, ..silent }, self.terms()))
    }

    /// [KSK-15] Reads the newest marker of the id of a transaction, where it would be.
    async fn marker(&self, handle: &TransactionHandle, retention: Duration) -> Result<Marker, ResolveError> {
        let Some((topic, partition)) = marked_partition(handle) else { return Ok(Marker::Silent) };
        let group = TransactionNaming::marker_group(&handle.transactional_id);
        let place = BTreeMap::from([(topic.clone(), BTreeSet::from([partition]))]);
        let doing = "read the marker of a transaction";
        let now =
            self.admin.offsets_now(&group, &place, self.within).await.map_err(ResolveError::asking(doing))?;
        // What is visible stays so, whatever becomes of a later transaction under the id.
        if let Some(seen) = now.get(&(topic.clone(), partition))
            && let marker @ Marker::At(newest) = marker_of(seen.offset, &seen.metadata)
            && newest >= handle.checkpoint
        {
            return Ok(marker);
        }
        let mut read = match self.admin.stable_offsets(&group, &place, DECIDED_WITHIN.min(self.within)).await
        {
            // A later one under the id waits for its commit, which may wait for this answer.
            Err(error) if error.code() == Some(ErrorCode::UNSTABLE_OFFSET_COMMIT) => {
                return Ok(Marker::Silent);
            }
            read => read.map_err(ResolveError::asking(doing))?,
        };
        match read.remove(&(topic, partition)) {
            Some(committed) => Ok(marker_of(committed.offset, &committed.metadata)),
            None => {
                let age = handle.start.map(|start| self.clock.now().since(start));
                Ok(if age.is_some_and(|age| age < retention) { Marker::Never } else { Marker::Silent })
            }
        }
    }

    /// [KSK-09] Commits a transaction, and waits until readers of committed data see it. Succeeds if that is so already.
    ///
    /// # Errors
    /// It was aborted, nobody tells, or it cannot be done in [time](Self::within).
    /// [`ResolveError::Unseen`] and [`ResolveError::Unchecked`] where it is committed, and readers may not see it.
    ///
    /// # Cancel safety
    /// After a drop it may be committed or not; the same call finds out.
    pub async fn commit(&self, handle: &TransactionHandle) -> Result<(), ResolveError> {
        self.decide_commit(handle).await?;
        self.see_committed(handle).await
    }

    /// [KSK-09] Commits a transaction for good. Readers see it a moment later; [`see`](Self::see) tells.
    pub(super) async fn decide_commit(&self, handle: &TransactionHandle) -> Result<(), ResolveError> {
        if handle.records == 0 {
            return Ok(());
        }
        fail_point!("kafka::commit::before_end");
        let begun = Instant::now();
        let ended = self.end(handle, true).await;
        match &ended {
            Ok(()) => {
                fail_point!("kafka::commit::after_end");
                self.metrics.note_committed(&handle.transactional_id, begun.elapsed());
            }
            Err(ResolveError::Lost { .. }) => {
                self.metrics.note_lost(&handle.transactional_id, handle.records);
            }
            Err(error) if error.is_retriable() => self.metrics.note_retry(),
            Err(_) => {}
        }
        ended
    }

    /// Aborts a transaction. Succeeds if it is aborted already, or was never there.
    ///
    /// # Errors
    /// It is committed, or it cannot be done in [time](Self::within).
    ///
    /// # Cancel safety
    /// After a drop it may be aborted or not; the same call finds out.
    pub async fn abort(&self, handle: &TransactionHandle) -> Result<(), ResolveError> {
        fail_point!("kafka::roll_back::before_end");
        self.end(handle, false).await?;
        fail_point!("kafka::roll_back::after_end");
        self.metrics.note_aborted(&handle.transactional_id);
        Ok(())
    }

    /// Whether a transaction has ended as it was asked to, where the coordinator refuses; `false`: ask again.
    async fn has_ended(&self, handle: &TransactionHandle, commit: bool) -> Result<bool, ResolveError> {
        let cluster = self
            .admin
            .cluster(&[], self.within)
            .await
            .map_err(ResolveError::asking("ask for the cluster"))?;
        let fate = self.found(handle, &cluster.id, self.retention().await).await?;
        let transaction = || handle.to_string();
        if !commit {
            return match settled_abort(fate) {
                AbortSettled::Done => Ok(true),
                AbortSettled::Again => Ok(false),
                // What is visible is another transaction of its epoch.
                AbortSettled::Visible if handle.records == 0 => Ok(true),
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

    /// Sends the end until it is through. An answer that was lost is no reason to ask: the same end again is harmless, because
    /// nothing else has this epoch.
    async fn end(&self, handle: &TransactionHandle, commit: bool) -> Result<(), ResolveError> {
        let until = Instant::now() + self.within;
        let key = key_of(handle);
        let ending = if commit { Ending::Commit } else { Ending::Abort };
        let transaction = || handle.to_string();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Err(error) = self.admin.end(key, ending, left).await else { return Ok(()) };
            match error.code().map(|ErrorCode(code)| (code, answer(code))) {
                Some((_, Answer::Ask)) => {
                    if self.has_ended(handle, commit).await? {
                        return Ok(());
                    }
                }
                Some((code, Answer::Forbidden)) => {
                    return Err(ResolveError::Forbidden { transaction: transaction(), code });
                }
                Some((_, Answer::Unexpected(code))) => {
                    return Err(ResolveError::Unexpected { transaction: transaction(), code });
                }
                None if error.is_outcome_unknown() => {}
                _ => return Err(ResolveError::asking("end a transaction")(error)),
            }
            // The answer is lost, or about a state that has passed.
            if until <= Instant::now() {
                return Err(ResolveError::asking("end a transaction")(error));
            }
            self.metrics.note_retry();
            tracing::debug!(transaction = %handle, %error, "the end of a transaction is sent again");
            TokioSleeper.sleep(PAUSE).await;
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
        fail_point!("kafka::fence::before_list");
        let doing = "list the transactions that are left over";
        // What is complete can neither be written to nor ended: late writes to it are refused. Nor can what is decided to be
        // committed, and an initialised id would hide a marker of it that is left out.
        let states = [State::Empty, State::Ongoing, State::PrepareAbort];
        let open = self.admin.list(&states, self.within).await.map_err(ResolveError::asking(doing))?;
        let begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ids = open.iter().map(|listed| listed.transactional_id.as_str());
        self.warn_of_later(first, &open);
        let left_over = to_fence(&self.naming, ids, first, kept, &begun);
        fail_point!("kafka::fence::listed");
        for some in left_over.chunks(AT_ONCE) {
            let fenced = some.iter().map(|id| self.admin.fence(id, timeout, self.within));
            let doing = "fence a transactional id that was left over";
            try_join_all(fenced).await.map_err(ResolveError::asking(doing))?;
            self.metrics.note_fenced(some.len() as u64);
        }
        fail_point!("kafka::fence::after");
        Ok(())
    }

    /// What attempts above this one have left is spared: they are of whoever took over. Where nobody did, the store is not the one
    /// that they had.
    fn warn_of_later(&self, first: CheckpointId, open: &[Listed]) {
        let is_later = |id: &&str| self.naming.slot_of(id).is_some_and(|slot| slot.attempt > first.attempt);
        let ids: Vec<&str> = open.iter().map(|one| one.transactional_id.as_str()).filter(is_later).collect();
        if let Some(id) = ids.first() {
            tracing::warn!(
                count = ids.len(),
                id,
                attempt = first.attempt,
                "transactional ids of later attempts than this one are left alone: another process has taken over, or the \
                 checkpoints of these attempts are lost. What is open among them ends by its timeout, or by levada transactions \
                 abort --force"
            );
        }
    }

    /// The brokers' bound for the timeout of transactions, if they tell.
    pub(in crate::sink) async fn longest_timeout(&self) -> Result<Option<Duration>, ResolveError> {
        let told = self.smallest_setting("transaction.max.timeout.ms").await;
        let told = told.map_err(ResolveError::asking("ask for the longest timeout of transactions"))?;
        Ok(told.map(Duration::from_millis))
    }
}

pub(super) fn key_of(handle: &TransactionHandle) -> TransactionKey<'_> {
    let TransactionHandle { transactional_id, producer_id, epoch, .. } = handle;
    TransactionKey { transactional_id, producer_id: *producer_id, epoch: *epoch }
}

/// The timeout of a transaction; none where brokers are told that there is none.
fn finite(timeout: Duration) -> Option<Duration> {
    (timeout.as_millis() < i32::MAX as u128).then_some(timeout)
}

/// The same in the words of the decision.
pub(super) fn described(told: Described) -> DescribedTransaction {
    let state = match told.state {
        State::Empty => TransactionState::Empty,
        State::Ongoing => TransactionState::Ongoing,
        State::PrepareCommit => TransactionState::PrepareCommit,
        State::PrepareAbort => TransactionState::PrepareAbort,
        State::CompleteCommit => TransactionState::CompleteCommit,
        State::CompleteAbort => TransactionState::CompleteAbort,
        State::Dead => TransactionState::Dead,
        _ => TransactionState::Other,
    };
    DescribedTransaction {
        state,
        producer_id: told.identity.producer_id,
        epoch: told.identity.epoch,
        start: told.start,
        timeout: told.timeout,
        partitions: told.partitions,
    }
}

/// The partition of a transaction whose group offset is its marker: the first.
pub(super) fn marked_partition(handle: &TransactionHandle) -> Option<(String, i32)> {
    let (topic, partitions) = handle.partitions.iter().next()?;
    Some((topic.clone(), *partitions.iter().next()?))
}

/// An offset has the sequence of a checkpoint, and the attempt in its metadata. What is not ours tells nothing.
fn marker_of(sequence: u64, attempt: &str) -> Marker {
    attempt.parse().map_or(Marker::Silent, |attempt| Marker::At(CheckpointId { attempt, sequence }))
}
