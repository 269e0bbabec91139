//! What earlier runs have committed, and readers do not see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use backon::{Sleeper as _, TokioSleeper};
use tokio::time::Instant;

use super::error::ResolveError;
use super::resolver::Resolver;
use crate::protocol::{ActiveProducer, ErrorCode, Look, ProtocolError, State, TransactionAdmin as _};
use crate::sink::recovery::{CommittedTransaction, Partitions, Place};

/// Decided to be committed, with its markers written or on their way: [`see`](Resolver::see) waits for the latter.
const COMMITTED: [State; 2] = [State::PrepareCommit, State::CompleteCommit];
/// A leader that is away comes back in seconds.
const PAUSE: Duration = Duration::from_millis(500);
/// So many partitions are asked about at once: each answer has all producers of the last day in it.
const AT_ONCE: usize = 500;

/// A producer that has a transaction open in partitions.
type Open = BTreeMap<i64, Partitions>;

impl Resolver {
    /// Looks for transactions of this sink, of whatever attempt, that their coordinators call committed and that are open in a
    /// partition of these topics, and writes the markers that were left out. A process that is killed between a commit and
    /// the look behind it leaves no handle: its checkpoint is resolved.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); a leader of one of the partitions does not tell.
    pub(in crate::sink) async fn see_left_over(&self, topics: &[String]) -> Result<(), ResolveError> {
        let ours = self.committed_ids().await?;
        if ours.is_empty() || topics.is_empty() {
            return Ok(());
        }
        for (producer_id, partitions) in self.open_in(topics, &ours).await? {
            // Of each there is one.
            let Some(id) = ours.get(&producer_id) else { continue };
            if let Some(transaction) = self.committed(id, producer_id, partitions).await? {
                self.see(&transaction).await?;
            }
        }
        Ok(())
    }

    /// By producer.
    async fn committed_ids(&self) -> Result<BTreeMap<i64, String>, ResolveError> {
        let doing = "list the transactions that are committed";
        let listed = self.admin.list(&COMMITTED, self.within).await;
        let listed = listed.map_err(ResolveError::asking(doing))?.into_iter();
        let ours = listed.filter(|one| self.naming.slot_of(&one.transactional_id).is_some());
        Ok(ours.map(|one| (one.producer_id, one.transactional_id)).collect())
    }

    /// What its coordinator says of it now; `None` if it has gone on meanwhile.
    async fn committed(
        &self,
        id: &str,
        producer_id: i64,
        partitions: Partitions,
    ) -> Result<Option<CommittedTransaction>, ResolveError> {
        let doing = "ask whether a transaction is committed";
        let told = self.admin.describe(&[id], self.within).await.map_err(ResolveError::asking(doing))?;
        let found = told.into_values().next().flatten();
        let found =
            found.filter(|one| COMMITTED.contains(&one.state) && one.identity.producer_id == producer_id);
        Ok(found.map(|found| CommittedTransaction {
            transactional_id: id.to_owned(),
            producer_id,
            epoch: found.identity.epoch,
            start: found.start,
            told: format!("{id} (producer {producer_id}, epoch {})", found.identity.epoch),
            partitions,
        }))
    }

    async fn open_in(&self, topics: &[String], ours: &BTreeMap<i64, String>) -> Result<Open, ResolveError> {
        let mut open = Open::new();
        for some in self.places(topics).await?.chunks(AT_ONCE) {
            for ((topic, partition), producers) in self.producers_in(some).await? {
                let is_ours =
                    |one: &&ActiveProducer| one.open_from.is_some() && ours.contains_key(&one.producer_id);
                for one in producers.iter().filter(is_ours) {
                    let of_producer = open.entry(one.producer_id).or_default();
                    of_producer.entry(topic.clone()).or_default().insert(partition);
                }
            }
        }
        Ok(open)
    }

    /// The partitions of topics that are there; of others nothing can be hidden.
    async fn places(&self, topics: &[String]) -> Result<Vec<Place>, ResolveError> {
        let mut places = Vec::new();
        for topic in topics {
            let cluster = match self.admin.cluster(&[topic], self.within).await {
                Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => continue,
                told => told.map_err(ResolveError::asking("ask for the partitions of a topic"))?,
            };
            let partitions = cluster.topics.into_values().flat_map(|topic| topic.partitions.into_keys());
            places.extend(partitions.map(|partition| (topic.clone(), partition)));
        }
        Ok(places)
    }

    /// Asks until every leader has told.
    async fn producers_in(
        &self,
        places: &[Place],
    ) -> Result<Vec<(Place, Vec<ActiveProducer>)>, ResolveError> {
        let until = Instant::now() + self.within;
        let mut told = Vec::new();
        let mut left: BTreeSet<Place> = places.iter().cloned().collect();
        let mut silent = None;
        loop {
            let within = until.saturating_duration_since(Instant::now());
            let looks = match (self.admin.look_at(&by_topic(&left), within).await, silent.take()) {
                (Ok(looks), _) => looks,
                // The time is over: what was told before it says more.
                (Err(_), Some((place, cause))) => return Err(untold(&place, cause)),
                (Err(error), None) => {
                    return Err(ResolveError::asking("look for transactions that are left open")(error));
                }
            };
            for (place, look) in looks {
                match look {
                    Look::Told(producers) => {
                        left.remove(&place);
                        told.push((place, producers));
                    }
                    Look::Absent => drop(left.remove(&place)),
                    Look::Silent(cause) => silent = Some((place, cause)),
                }
            }
            let Some((place, cause)) = &silent else { return Ok(told) };
            if !cause.is_retriable() || Instant::now() >= until {
                return Err(untold(place, Arc::clone(cause)));
            }
            TokioSleeper.sleep(PAUSE).await;
        }
    }
}

fn untold((topic, partition): &Place, cause: Arc<ProtocolError>) -> ResolveError {
    let transaction = "what earlier runs have committed".to_owned();
    ResolveError::Unchecked { transaction, place: format!("{topic}[{partition}]"), cause: Some(cause) }
}

fn by_topic(places: &BTreeSet<Place>) -> Partitions {
    let mut by_topic = Partitions::new();
    for (topic, partition) in places {
        by_topic.entry(topic.clone()).or_default().insert(*partition);
    }
    by_topic
}
