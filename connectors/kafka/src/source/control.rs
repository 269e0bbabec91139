//! Seeking, pausing and resuming from beside a source that runs.
//!
//! ```text
//!   seek ── resolved to a number ──▶ poll: a new reading begins, what comes of the old one is stale ──▶ thread: assigned anew
//!   pause, resume ─────────────────────────────────────────────────────────────────────────────────▶ thread
//! ```
//!
//! A seek goes through `poll`, because that is who knows which records were handed out already: what a poll returns after
//! the seek was taken is from the new position.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levada_core::{Budget, ErrorClass, Position, Positions, SourceContext, SourceError, SplitId, Timestamp};
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use tokio::sync::oneshot;

use super::client::at_offsets;
use super::config::{KafkaSourceConfig, Otherwise, StartAt, StopAt};
use super::error::ReadError;
use super::handover::{Command, Exchange, Seek};
use super::leaders::{Told, leaders_config};
use super::retire::retire;
use super::start::resolve_now;
use super::status::SourceStatus;

/// Where a split goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekTo {
    /// At this offset.
    Offset(u64),
    /// As [`StartAt::Earliest`].
    Earliest,
    /// As [`StartAt::Latest`].
    Latest,
    /// As [`StartAt::Timestamp`].
    Timestamp(Timestamp),
    /// Where the group has committed to be; an error if it has not.
    Committed,
}

/// Steers a [`KafkaSource`](super::KafkaSource) from anywhere, also while the source belongs to an engine. Cheap to clone.
#[derive(Clone)]
pub struct SourceControl {
    exchange: Arc<Exchange>,
    config: KafkaSourceConfig,
    status: Arc<SourceStatus>,
    committer: Arc<Mutex<Option<Committer>>>,
}

/// A client that commits.
type Committer = BaseConsumer<Told>;

impl SourceControl {
    pub(super) fn new(exchange: Arc<Exchange>, config: KafkaSourceConfig, status: Arc<SourceStatus>) -> Self {
        Self { exchange, config, status, committer: Arc::default() }
    }

    /// Lets a split go on from somewhere else, and returns from where. [SRC-18]
    ///
    /// Returns once a poll of the source has taken the seek: no record of the old position comes out of a later poll, and
    /// the first one of this split is the one asked for. The new position is told in line, like any other that moves, so
    /// that it is committed; a split that rests goes on resting. Needs the source to be polled. The record itself may take as
    /// long as a broker lets a fetch wait for news of the other splits: `fetch.wait.max.ms`, 500 ms unless set.
    ///
    /// Dropping the future does not withdraw a seek that is on its way.
    ///
    /// # Errors
    /// The split is not read now, or has come to its end; the source has ended; the place cannot be found. Nothing was
    /// sought then.
    pub async fn seek(&self, split: SplitId, to: SeekTo) -> Result<Position, SourceError> {
        let next = match to {
            SeekTo::Offset(offset) => offset,
            SeekTo::Earliest => self.find(&split, StartAt::Earliest).await?,
            SeekTo::Latest => self.find(&split, StartAt::Latest).await?,
            SeekTo::Timestamp(time) => self.find(&split, StartAt::Timestamp(time)).await?,
            SeekTo::Committed => self.find(&split, StartAt::Committed { otherwise: Otherwise::Fail }).await?,
        };
        let position = Position::at(next);
        let (done, taken) = oneshot::channel();
        self.exchange.seek(Seek { split: split.clone(), position: position.clone(), done });
        match taken.await {
            Ok(true) => Ok(position),
            Ok(false) => Err(SourceError::new(ErrorClass::Fatal, format!("{split} is not read now"))),
            Err(_) => Err(SourceError::new(ErrorClass::Fatal, "the Kafka source has ended")),
        }
    }

    /// Lets splits rest until [`resume`](Self::resume), also when they are taken away meanwhile and come back. Records that
    /// are on their way still come.
    pub fn pause(&self, splits: &[SplitId]) {
        self.exchange.command(Command::UserPause(splits.to_vec(), true));
    }

    /// Goes on with splits that rest, from their own positions. Those that the engine lets rest go on when it lets them.
    pub fn resume(&self, splits: &[SplitId]) {
        self.exchange.command(Command::UserPause(splits.to_vec(), false));
    }

    /// Commits positions for the group: for others to see, and for [`StartAt::Committed`].
    ///
    /// With a client of its own, made at the first commit: the consumer never waits for it.
    ///
    /// # Errors
    /// The broker refuses it or cannot be reached.
    pub async fn commit(&self, positions: Positions) -> Result<(), SourceError> {
        let (config, committer) = (self.config.clone(), Arc::clone(&self.committer));
        let committing = tokio::task::spawn_blocking(move || commit(&config, &committer, &positions));
        let failed = |cause| SourceError::new(ErrorClass::Reconnect, "commit offsets").caused_by(cause);
        let outcome = committing.await.map_err(failed)?;
        self.status.count_commit(outcome.is_ok());
        Ok(outcome?)
    }

    /// Asks the cluster with a client of its own, which takes longer than the question; seeks are rare.
    async fn find(&self, split: &SplitId, start: StartAt) -> Result<u64, SourceError> {
        let config = self.config.clone().start_at(start).stop_at(StopAt::Never);
        let split = split.clone();
        let asking = tokio::task::spawn_blocking(move || resolve_now(&config, &split));
        let failed = |cause| SourceError::new(ErrorClass::Fatal, "ask for an offset").caused_by(cause);
        Ok(asking.await.map_err(failed)??)
    }
}

/// Commits, with the client that is there or a new one. Blocks.
fn commit(
    config: &KafkaSourceConfig,
    committer: &Mutex<Option<Committer>>,
    positions: &Positions,
) -> Result<(), ReadError> {
    if positions.is_empty() {
        return Ok(());
    }
    let offset = |next: u64| Offset::Offset(i64::try_from(next).unwrap_or(i64::MAX));
    let list = at_offsets(positions.iter().map(|(split, position)| (split, offset(position.next))))?;
    let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
    let consumer = match &mut *committer {
        Some(consumer) => consumer,
        made => {
            let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(0) };
            let consumer = leaders_config(config, &ctx).create_with_context(Told);
            made.insert(consumer.map_err(ReadError::of_creation)?)
        }
    };
    let outcome = consumer.commit(&list, CommitMode::Sync);
    while consumer.poll(Duration::ZERO).is_some() {}
    // It may have lost all brokers for good; another client finds them again.
    if outcome.is_err()
        && let Some(consumer) = committer.take()
    {
        retire(consumer);
    }
    outcome.map_err(|cause| ReadError::Call { doing: "commit offsets", cause })
}

impl std::fmt::Debug for SourceControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceControl").field("config", &self.config).finish_non_exhaustive()
    }
}
