//! Seeing to it that readers see what is committed.
//!
//! ```text
//!   commit ──▶ coordinator: complete? ──▶ leaders: open still? ──┬─ no ──▶ seen
//!                    ▲ not yet                  ▲                └─ yes ─▶ write the marker ─┐
//!                    └───────                   └───────────────── look again ◀──────────────┘
//! ```
//!
//! Kafka 4.3.0 leaves out the marker of a partition that has no leader when it would be sent. Nobody sends it later: the
//! transaction is complete, readers of committed data stay in front of it, and if a later transaction of its producer were
//! aborted, its records would be passed over. So an id is not used again before its last transaction is seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{Sleeper as _, TokioSleeper};
use tokio::time::Instant;

use super::error::ResolveError;
use super::resolver::{Resolver, described};
use crate::protocol::{ActiveProducer, CommitMarker, ErrorCode, Look, ProtocolError, TransactionAdmin as _};
use crate::sink::recovery::{
    CommittedTransaction, Completion, Description, LeftOut, OpenProducer, Partitions, Place, Seen, Told,
    TransactionHandle, TransactionNaming, completion, seen,
};

/// Markers are mostly there in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A leader that is away comes back in seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So many times the bound of one step: a broker may be starting again.
const STEPS: u32 = 4;
/// How long the cluster has to say that there is no such topic: a broker that is behind may not know it yet.
const DELETED_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer about the marker's group may take at first before its partition is looked into.
const DECIDED_WITHIN: Duration = Duration::from_millis(500);
/// How long one look may take: what is not told in time is asked again.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

impl Resolver {
    /// [KSK-09] Waits until readers of committed data see a transaction whose commit is decided, in each of its partitions, and
    /// writes the markers that its coordinator has left out.
    ///
    /// # Errors
    /// [`ResolveError::Unseen`] where a marker cannot be written, [`ResolveError::Unchecked`] where nobody tells.
    ///
    /// # Cancel safety
    /// The same call goes on.
    pub(in crate::sink) async fn see(&self, transaction: &CommittedTransaction) -> Result<(), ResolveError> {
        let until = Instant::now() + STEPS * self.within;
        let mut seeing = Seeing { resolver: self, transaction, until, pause: FIRST_PAUSE };
        let description = seeing.until_complete().await?;
        let mut left = transaction.partitions.clone();
        if let Some((topic, partition)) = seeing.unstable_offsets().await? {
            left.entry(topic).or_default().insert(partition);
        }
        seeing.pause = FIRST_PAUSE;
        seeing.until_seen(&description, left).await?;
        self.metrics.note_seen(&transaction.transactional_id);
        Ok(())
    }

    /// The same of the transaction of a handle.
    pub(in crate::sink) async fn see_committed(
        &self,
        handle: &TransactionHandle,
    ) -> Result<(), ResolveError> {
        match handle.records {
            0 => Ok(()),
            _ => self.see(&CommittedTransaction::of(handle)).await,
        }
    }
}

/// One transaction that is looked behind.
struct Seeing<'a> {
    resolver: &'a Resolver,
    transaction: &'a CommittedTransaction,
    until: Instant,
    pause: Duration,
}

/// What there is to say of a partition in which the transaction is not seen.
struct Trouble {
    place: Place,
    left_out: Option<LeftOut>,
    cause: Option<Arc<ProtocolError>>,
}

impl Seeing<'_> {
    /// Whatever the coordinator has not dealt with by then may be on its way.
    async fn until_complete(&mut self) -> Result<Description, ResolveError> {
        let id = self.transaction.transactional_id.as_str();
        loop {
            let cause = match self.resolver.admin.describe(&[id], self.within(self.resolver.within)).await {
                Ok(mut told) => {
                    let found = told.remove(id).flatten();
                    let description =
                        found.map_or(Description::NotFound, |one| Description::Found(described(one)));
                    match completion(self.transaction, &description) {
                        Completion::Complete => return Ok(description),
                        Completion::NotYet => None,
                        Completion::Contradicted => {
                            return Err(self.unchecked("all of them".to_owned(), None));
                        }
                    }
                }
                Err(error) if error.is_retriable() => Some(Arc::new(error)),
                Err(error) => return Err(self.unchecked("all of them".to_owned(), Some(Arc::new(error)))),
            };
            if self.is_late() {
                return Err(self.unchecked("all of them".to_owned(), cause));
            }
            self.rest().await;
        }
    }

    /// The partition of the marker's group, if its offset is not decided: its own part of the transaction may be left out.
    async fn unstable_offsets(&mut self) -> Result<Option<Place>, ResolveError> {
        let Some(marked) = first_of(&self.transaction.partitions) else { return Ok(None) };
        let group = TransactionNaming::marker_group(&self.transaction.transactional_id);
        let marked = [(marked.0, [marked.1].into())].into();
        let mut patience = DECIDED_WITHIN;
        loop {
            let within = self.within(patience);
            // A busy broker takes longer than what is mostly enough.
            patience = LOOK_WITHIN.min(4 * patience);
            let error = match self.resolver.admin.stable_offsets(&group, &marked, within).await {
                Ok(_) => return Ok(None),
                Err(error) if error.code() == Some(ErrorCode::UNSTABLE_OFFSET_COMMIT) => break,
                Err(error) => error,
            };
            if self.is_late() || !error.is_retriable() {
                return Err(self.unchecked(format!("the offsets of group {group}"), Some(Arc::new(error))));
            }
            self.rest().await;
        }
        let found = self.resolver.admin.offsets_partition(&group, self.within(self.resolver.within)).await;
        found
            .map(Some)
            .map_err(|error| self.unchecked(format!("the offsets of group {group}"), Some(Arc::new(error))))
    }

    /// Looks at the leaders, and writes what is missing, until nothing is.
    async fn until_seen(
        &mut self,
        description: &Description,
        mut left: Partitions,
    ) -> Result<(), ResolveError> {
        let deleted_from = Instant::now() + DELETED_WITHIN;
        loop {
            let is_known_deleted = Instant::now() >= deleted_from;
            let (told, mut troubles) = self.look(&left, is_known_deleted).await?;
            let left_out = match seen(self.transaction, description, &told) {
                Seen::Everywhere => return Ok(()),
                Seen::NotYet => Vec::new(),
                Seen::LeftOut(left_out) => left_out,
            };
            for one in left_out {
                let cause = self.write(&one).await?;
                troubles.insert(0, Trouble { place: one.place.clone(), left_out: Some(one), cause });
            }
            if self.is_late() {
                return Err(self.told(troubles));
            }
            keep(&mut left, &troubles);
            self.rest().await;
        }
    }

    async fn look(
        &self,
        left: &Partitions,
        is_known_deleted: bool,
    ) -> Result<(BTreeMap<Place, Told>, Vec<Trouble>), ResolveError> {
        let mut troubles = Vec::new();
        let looks = match self.resolver.admin.look_at(left, self.within(LOOK_WITHIN)).await {
            Ok(looks) => looks,
            Err(error) => {
                let cause = Arc::new(error);
                let silent = |place: Place| (place, Look::Silent(Arc::clone(&cause)));
                places(left).map(silent).collect()
            }
        };
        let mut told = BTreeMap::new();
        for (place, look) in looks {
            let (said, cause) = match look {
                Look::Told(producers) => (Told::Open(open(&producers)), None),
                Look::Absent if is_known_deleted => {
                    self.warn_of_deleted(&place);
                    (Told::Deleted, None)
                }
                Look::Absent => (Told::Silent, None),
                Look::Silent(cause) if is_forbidden(&cause) => {
                    return Err(self.unchecked(told_of(&place), Some(cause)));
                }
                Look::Silent(cause) => (Told::Silent, Some(cause)),
            };
            if said == Told::Silent {
                troubles.push(Trouble { place: place.clone(), left_out: None, cause });
            }
            told.insert(place, said);
        }
        Ok((told, troubles))
    }

    /// Writes the marker that was left out. Returns why it may not be there: the next look tells.
    async fn write(&self, left_out: &LeftOut) -> Result<Option<Arc<ProtocolError>>, ResolveError> {
        let LeftOut { place: (topic, partition), open_from, coordinator_epoch } = left_out;
        let CommittedTransaction { producer_id, epoch, told, .. } = self.transaction;
        tracing::warn!(
            transaction = %told, topic, partition, open_from,
            "committed, and not seen by readers: the broker has left out the commit marker of a partition. It is written now"
        );
        let marker =
            CommitMarker { producer_id: *producer_id, epoch: *epoch, coordinator_epoch: *coordinator_epoch };
        let within = self.within(LOOK_WITHIN);
        match self.resolver.admin.write_commit_marker((topic, *partition), marker, within).await {
            Ok(()) => {
                self.resolver.metrics.note_marker_written();
                Ok(None)
            }
            Err(error) if error.is_retriable() || error.is_outcome_unknown() => Ok(Some(Arc::new(error))),
            Err(error) => Err(self.unseen(left_out, Some(Arc::new(error)))),
        }
    }

    fn told(&self, troubles: Vec<Trouble>) -> ResolveError {
        match troubles.into_iter().next() {
            Some(Trouble { left_out: Some(left_out), cause, .. }) => self.unseen(&left_out, cause),
            Some(Trouble { place, cause, .. }) => self.unchecked(told_of(&place), cause),
            None => self.unchecked("all of them".to_owned(), None),
        }
    }

    fn unseen(&self, left_out: &LeftOut, cause: Option<Arc<ProtocolError>>) -> ResolveError {
        let (transaction, place) = (self.transaction.told.clone(), told_of(&left_out.place));
        ResolveError::Unseen { transaction, place, open_from: left_out.open_from, cause }
    }

    fn unchecked(&self, place: String, cause: Option<Arc<ProtocolError>>) -> ResolveError {
        ResolveError::Unchecked { transaction: self.transaction.told.clone(), place, cause }
    }

    fn warn_of_deleted(&self, place: &Place) {
        let transaction = &self.transaction.told;
        tracing::warn!(%transaction, place = told_of(place), "committed into a partition that is deleted meanwhile");
    }

    fn within(&self, most: Duration) -> Duration {
        self.until.saturating_duration_since(Instant::now()).min(most)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    async fn rest(&mut self) {
        TokioSleeper.sleep(self.within(self.pause)).await;
        self.pause = LONGEST_PAUSE.min(2 * self.pause);
    }
}

fn is_forbidden(error: &ProtocolError) -> bool {
    let codes = [ErrorCode::TOPIC_AUTHORIZATION_FAILED, ErrorCode::CLUSTER_AUTHORIZATION_FAILED];
    error.code().is_some_and(|code| codes.contains(&code))
}

fn open(producers: &[ActiveProducer]) -> Vec<OpenProducer> {
    let open = |producer: &ActiveProducer| {
        let ActiveProducer { producer_id, epoch, open_from, coordinator_epoch, .. } = *producer;
        Some(OpenProducer { producer_id, epoch, open_from: open_from?, coordinator_epoch })
    };
    producers.iter().filter_map(open).collect()
}

/// Leaves those that there is still something to say of.
fn keep(left: &mut Partitions, troubles: &[Trouble]) {
    left.clear();
    for Trouble { place: (topic, partition), .. } in troubles {
        left.entry(topic.clone()).or_default().insert(*partition);
    }
}

fn places(partitions: &Partitions) -> impl Iterator<Item = Place> {
    partitions.iter().flat_map(|(topic, partitions)| partitions.iter().map(|one| (topic.clone(), *one)))
}

fn first_of(partitions: &Partitions) -> Option<Place> {
    places(partitions).next()
}

fn told_of((topic, partition): &Place) -> String {
    format!("{topic}[{partition}]")
}
