//! A slot whose transaction is written to.

use std::time::{Duration, Instant};

use levada_core::batch::Coordinates;

use super::describe::ProducerIdentity;
use super::frozen::FrozenSlot;
use super::mark::Mark;
use super::standing::{Place, SlotState};
use super::warm::Ready;
use crate::failpoint::fail_point;
use crate::sink::producing::{Message, ProduceError, Producer};

/// A slot whose transaction is written to: its producer, alone under its id and epoch.
///
/// Dropped, it leaves its transaction as it is: brokers abort it in time, or whoever recovers does.
#[derive(Debug)]
pub struct OpenSlot {
    place: Place,
    ready: Ready,
    opened: Instant,
}

/// What freezing came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Freeze {
    /// Every message is acknowledged: the transaction can be committed.
    Frozen(FrozenSlot),
    /// Nothing was written, so there is no transaction to commit; the slot stays open.
    Empty(OpenSlot),
}

impl OpenSlot {
    pub(super) fn new(place: Place, ready: Ready) -> Self {
        place.note(SlotState::Open, Some(ready.identity));
        Self { place, ready, opened: Instant::now() }
    }

    /// Returns its transactional id.
    pub fn id(&self) -> &str {
        &self.ready.id
    }

    /// Returns who its transaction is.
    pub fn identity(&self) -> ProducerIdentity {
        self.ready.identity
    }

    /// Returns its producer: for its counts, and for [`Producer::failed`].
    pub fn producer(&self) -> &Producer {
        &self.ready.producer
    }

    /// Tells whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.producer().sent() == 0
    }

    /// Returns how long it is open.
    pub fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Writes a message into the transaction, when there is room for it. Cancel safe: a call that is dropped has sent
    /// nothing.
    ///
    /// # Errors
    /// As [`Producer::send`]. The transaction lacks a message then, and must not be committed.
    pub async fn send(
        &self,
        message: &Message<'_>,
        origin: Option<&Coordinates>,
    ) -> Result<(), ProduceError> {
        #[cfg(feature = "failpoints")]
        let is_first = self.is_empty();
        fail_point!(if is_first, "kafka::write::before_first");
        self.producer().send(message, origin).await?;
        fail_point!(if is_first, "kafka::write::after_first");
        Ok(())
    }

    /// Waits until every message is acknowledged, and ends the writing. Not cancel safe: a dropped call leaves the transaction.
    ///
    /// A client that writes nothing does not learn that its transaction has timed out or was taken over: ask the coordinator
    /// before the transaction is relied on.
    ///
    /// # Errors
    /// A message failed, or has no report in time. The transaction lacks it then: the slot is [left](SlotState::Left), and what
    /// was written to it is to be written again, to another one.
    pub async fn freeze(self) -> Result<Freeze, ProduceError> {
        // Also with nothing sent: what could not be handed over is missing, too.
        self.producer().flush().await?;
        if self.is_empty() {
            return Ok(Freeze::Empty(self));
        }
        self.place.note(SlotState::Frozen, Some(self.ready.identity));
        Ok(Freeze::Frozen(FrozenSlot::new(self.place, self.ready)))
    }

    /// Lets `marking` write a marker into the transaction, at its first topic and partition, then [freezes](Self::freeze) it.
    ///
    /// # Errors
    /// As [`freeze`](Self::freeze), or the marker cannot be written.
    pub(crate) async fn freeze_marked<M: Mark>(self, marking: &M) -> Result<Freeze, M::Error> {
        fail_point!("kafka::freeze::before_flush");
        // Mostly every partition has something by now: the marker is on its way beside the last records.
        let early = self.first_partition();
        let mark = async {
            match &early {
                Some((topic, partition)) => marking.mark(topic, *partition).await,
                None => Ok(()),
            }
        };
        fail_point!("kafka::freeze::before_marker");
        let (flushed, marked) = tokio::join!(self.producer().flush(), mark);
        flushed?;
        marked?;
        // What was not delivered has no place for a marker, and is missing anyway.
        let first = self.first_partition();
        if let Some((topic, partition)) = first.filter(|first| Some(first) != early.as_ref()) {
            marking.mark(&topic, partition).await?;
        }
        fail_point!("kafka::freeze::after_marker");
        let frozen = self.freeze().await?;
        fail_point!("kafka::freeze::frozen");
        Ok(frozen)
    }

    /// The place of the marker: where whoever has the handle looks for it.
    fn first_partition(&self) -> Option<(String, u32)> {
        self.producer().delivered().partitions.into_keys().next()
    }

    /// Aborts the transaction, and gives the slot's number back for [`Slots::free`](super::Slots::free).
    ///
    /// # Errors
    /// The coordinator did not confirm it within `within`: the slot is left.
    pub async fn abort(self, within: Duration) -> Result<FrozenSlot, ProduceError> {
        self.producer().abort(self.id(), within).await?;
        Ok(FrozenSlot::new(self.place, self.ready))
    }
}
