//! The slots of one writer.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::describe::Describe;
use super::frozen::FrozenSlot;
use super::open::OpenSlot;
use super::standing::{Board, Place, SlotState, Standings};
use super::warm::{Ready, warmed};
use crate::sink::producing::{Guarantee, KafkaSinkConfig, ProduceError};

/// So many topics are made known to a producer beforehand.
const WARMED_TOPICS: usize = 100;

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
    warming: JoinSet<(u32, Result<Ready, ProduceError>)>,
    warm: VecDeque<(u32, Ready)>,
    /// Could not be made ready.
    cold: BTreeSet<u32>,
    topics: BTreeSet<String>,
}

impl<D> fmt::Debug for Slots<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("count", &self.count)
            .field("warming", &self.warming.len())
            .field("warm", &self.warm.len())
            .field("cold", &self.cold)
            .finish_non_exhaustive()
    }
}

impl<D: Describe> Slots<D> {
    /// Begins to make the slots of a writer ready, whatever guarantee the configuration names. `naming` makes a slot's number its transactional id: no id that an
    /// unresolved transaction of an earlier attempt has, because making a slot ready ends what is open under its id.
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
        let mut slots = Self {
            config: Arc::new(config),
            naming: Arc::new(naming),
            describe,
            board: Board::new(),
            count,
            warming: JoinSet::new(),
            warm: VecDeque::new(),
            cold: BTreeSet::new(),
            topics: BTreeSet::new(),
        };
        (0..count).for_each(|number| slots.begin_warming(number));
        Ok(slots)
    }

    /// Opens a slot: a warm one at once, else the first one that gets ready; one more is added if none is on the way.
    /// Before it returns, it sees to it that another one is on the way after this one.
    ///
    /// Whoever opens a slot has frozen the one before, or the order within partitions is lost. Cancel safe.
    ///
    /// # Errors
    /// A slot could not be made ready, and no other is on the way. The next call tries again.
    pub async fn open(&mut self) -> Result<OpenSlot, ProduceError> {
        self.collect();
        self.warm_again();
        let (number, ready) = self.first_ready().await?;
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

    async fn first_ready(&mut self) -> Result<(u32, Ready), ProduceError> {
        loop {
            if let Some(ready) = self.warm.pop_front() {
                return Ok(ready);
            }
            self.warm_one_more_if_none_is_free();
            let Some(ended) = self.warming.join_next().await else {
                // Only cold ones are left.
                self.warm_again();
                continue;
            };
            match ended {
                Ok((number, Ok(ready))) => self.warm.push_back((number, ready)),
                Ok((number, Err(error))) => {
                    self.cold.insert(number);
                    if self.warming.is_empty() {
                        return Err(error);
                    }
                }
                Err(_) => return Err(ProduceError::Lost { doing: "making a slot ready" }),
            }
        }
    }

    /// Takes over what has got ready meanwhile.
    fn collect(&mut self) {
        while let Some(ended) = self.warming.try_join_next() {
            match ended {
                Ok((number, Ok(ready))) => self.warm.push_back((number, ready)),
                Ok((number, Err(error))) => {
                    tracing::warn!(slot = number, error = %levada_core::ErrorChain(&error), "a slot is not ready");
                    self.cold.insert(number);
                }
                // Its number is not known, and not used again.
                Err(cause) => tracing::error!(%cause, "making a slot ready came to no end"),
            }
        }
    }

    fn warm_again(&mut self) {
        for number in std::mem::take(&mut self.cold) {
            self.begin_warming(number);
        }
    }

    fn warm_one_more_if_none_is_free(&mut self) {
        if self.warm.is_empty() && self.warming.is_empty() && self.cold.is_empty() {
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
        self.warming.spawn(async move {
            let ready = warmed(&config, &*describe, id, topics).await;
            match &ready {
                Ok(ready) => board.note(number, SlotState::Warm, Some(ready.identity)),
                Err(_) => board.note(number, SlotState::Cold, None),
            }
            (number, ready)
        });
    }
}
