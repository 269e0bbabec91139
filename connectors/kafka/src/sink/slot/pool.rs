//! The slots of one writer.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::describe::{Describe, ProducerIdentity};
use super::frozen::FrozenSlot;
use super::open::OpenSlot;
use super::standing::{Board, Place, SlotState, Standings};
use super::warm::{Ready, warmed};
use crate::sink::producing::{Guarantee, KafkaSinkConfig, ProduceError};

/// So many topics are made known to a producer beforehand.
const WARMED_TOPICS: usize = 100;
/// A slot that was ready for so long is asked about before it is opened: brokers forget ids that are not used, after a week
/// unless they are told otherwise.
const KNOWN_FOR: Duration = Duration::from_secs(60);

type Warmed = (u32, Result<Ready, ProduceError>);
type Naming = dyn Fn(u32) -> String + Send + Sync;

/// The transactional producers of one writer: opened one after the other, so that each transaction has an epoch of its own
/// and the next one need not be waited for.
///
/// Needs a tokio runtime around it.
pub struct Slots<D> {
    config: Arc<KafkaSinkConfig>,
    naming: Arc<Naming>,
    describe: Arc<D>,
    board: Board,
    /// How many there are, numbered from zero.
    count: u32,
    /// Ends with the slots.
    tasks: JoinSet<()>,
    /// What the tasks come to. Told before the board is, so that whoever sees a warm slot there gets it without waiting; the
    /// end of a task itself comes a little later. Bounded by the number of slots.
    ended: mpsc::UnboundedReceiver<Warmed>,
    tell: mpsc::UnboundedSender<Warmed>,
    /// How many have not come to an end.
    warming: u32,
    warm: VecDeque<(u32, Ready)>,
    /// Could not be made ready.
    cold: BTreeSet<u32>,
    topics: BTreeSet<String>,
    known_for: Duration,
}

impl<D> fmt::Debug for Slots<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("count", &self.count)
            .field("warming", &self.warming)
            .field("warm", &self.warm.len())
            .field("cold", &self.cold)
            .finish_non_exhaustive()
    }
}

impl<D: Describe> Slots<D> {
    /// Begins to make the slots of a writer ready, whatever guarantee the configuration names. `naming` makes a slot's number its
    /// transactional id: no id that an unresolved transaction of an earlier attempt has, because making a slot ready ends what is
    /// open under its id.
    ///
    /// # Errors
    /// The configuration cannot work.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn start(
        config: KafkaSinkConfig,
        naming: impl Fn(u32) -> String + Send + Sync + 'static,
        describe: Arc<D>,
    ) -> Result<Self, ProduceError> {
        let config = config.guarantee(Guarantee::ExactlyOnceByCheckpoint);
        config.check()?;
        let count = config.slots;
        let (tell, ended) = mpsc::unbounded_channel();
        let mut slots = Self {
            config: Arc::new(config),
            naming: Arc::new(naming),
            describe,
            board: Board::new(),
            count,
            tasks: JoinSet::new(),
            ended,
            tell,
            warming: 0,
            warm: VecDeque::new(),
            cold: BTreeSet::new(),
            topics: BTreeSet::new(),
            known_for: KNOWN_FOR,
        };
        (0..count).for_each(|number| slots.begin_warming(number));
        Ok(slots)
    }

    /// Sets for how long a slot that is ready is taken to be still known to the brokers; a minute unless set.
    #[must_use]
    pub fn known_for(mut self, time: Duration) -> Self {
        self.known_for = time;
        self
    }

    /// Opens a slot: one that was made ready a moment ago at once, one of long ago when the brokers still know it, else the first one
    /// that gets ready; one more is added if none is on the way. Before it returns, it sees to it that another one is on the way
    /// after this one.
    ///
    /// Whoever opens a slot has frozen the one before, or the order within partitions is lost. Cancel safe.
    ///
    /// # Errors
    /// A slot could not be made ready, and no other is on the way. The next call tries again.
    pub async fn open(&mut self) -> Result<OpenSlot, ProduceError> {
        self.collect();
        self.warm_again();
        let (number, ready) = self.first_known().await?;
        self.warm_one_more_if_none_is_free();
        Ok(OpenSlot::new(Place::new(number, self.board.clone()), ready))
    }

    /// Takes a slot back whose transaction is decided, when that is recorded, and begins to make it ready for another one.
    pub fn free(&mut self, slot: FrozenSlot) {
        for (topic, _) in slot.delivered().partitions.keys() {
            self.note_topic(topic);
        }
        let number = slot.into_number();
        self.begin_warming(number);
    }

    /// Adds a topic that is in use: slots are warm when they know it and its leaders. Those that are warm already learn it
    /// with their first message. Topics of the configuration, and of slots that were freed, need not be added.
    pub fn note_topic(&mut self, topic: &str) {
        if self.topics.len() < WARMED_TOPICS && !self.topics.contains(topic) {
            self.topics.insert(topic.to_owned());
        }
    }

    /// Returns how all slots stand, now and after each change.
    pub fn standings(&self) -> watch::Receiver<Standings> {
        self.board.watch()
    }

    /// One that the brokers still know as it was made ready; others are made ready again. Where nobody tells, it is taken for known.
    async fn first_known(&mut self) -> Result<(u32, Ready), ProduceError> {
        let until = Instant::now() + self.config.open_within;
        loop {
            let (number, ready) = self.first_ready().await?;
            if ready.since.elapsed() < self.known_for {
                return Ok((number, ready));
            }
            let (id, identity) = (ready.id.clone(), ready.identity);
            // Whoever stops waiting leaves it here.
            self.warm.push_front((number, ready));
            let is_known = self.is_known(&id, identity, until).await;
            let Some((number, ready)) = self.warm.pop_front() else { continue };
            if is_known {
                return Ok((number, ready));
            }
            tracing::debug!(id, "the brokers do not know a slot any more: it is made ready again");
            drop(ready);
            self.begin_warming(number);
        }
    }

    async fn is_known(&self, id: &str, identity: ProducerIdentity, until: Instant) -> bool {
        match tokio::time::timeout_at(until, self.describe.describe(id)).await {
            Ok(Ok(told)) => told == Some(identity),
            Ok(Err(_)) | Err(_) => true,
        }
    }

    async fn first_ready(&mut self) -> Result<(u32, Ready), ProduceError> {
        loop {
            if let Some(ready) = self.warm.pop_front() {
                return Ok(ready);
            }
            self.warm_one_more_if_none_is_free();
            // Never the end: one sender is ours.
            let Some(ended) = self.ended.recv().await else { continue };
            match self.take(ended) {
                Err(error) if self.warming == 0 => return Err(error),
                // Another one may get ready.
                _ => {}
            }
        }
    }

    /// Takes over what has got ready meanwhile.
    fn collect(&mut self) {
        while let Ok(ended) = self.ended.try_recv() {
            if let Err(error) = self.take(ended) {
                tracing::warn!(error = %levada_core::ErrorChain(&error), "a slot is not ready");
            }
        }
    }

    fn take(&mut self, (number, ended): Warmed) -> Result<(), ProduceError> {
        self.warming -= 1;
        match ended {
            Ok(ready) => self.warm.push_back((number, ready)),
            Err(error) => {
                self.cold.insert(number);
                return Err(error);
            }
        }
        Ok(())
    }

    fn warm_again(&mut self) {
        for number in std::mem::take(&mut self.cold) {
            self.begin_warming(number);
        }
    }

    fn warm_one_more_if_none_is_free(&mut self) {
        if self.warm.is_empty() && self.warming == 0 && self.cold.is_empty() {
            let number = self.count;
            self.count += 1;
            self.begin_warming(number);
        }
    }

    fn begin_warming(&mut self, number: u32) {
        self.board.note(number, SlotState::Warming, None);
        let (config, describe) = (Arc::clone(&self.config), Arc::clone(&self.describe));
        let (board, id) = (self.board.clone(), (self.naming)(number));
        let topics = self.topics.iter().cloned().collect();
        let tell = self.tell.clone();
        self.warming += 1;
        self.tasks.spawn(async move {
            let warming = AssertUnwindSafe(warmed(&config, &*describe, id, topics)).catch_unwind();
            let lost = |_| Err(ProduceError::Lost { doing: "making a slot ready" });
            let ready = warming.await.unwrap_or_else(lost);
            let (state, identity) = match &ready {
                Ok(ready) => (SlotState::Warm, Some(ready.identity)),
                Err(_) => (SlotState::Cold, None),
            };
            // Nobody takes it when the slots are gone: the producer ends then.
            drop(tell.send((number, ready)));
            board.note(number, state, identity);
        });
        // Those that have ended leave nothing behind.
        while self.tasks.try_join_next().is_some() {}
    }
}
