//! A slot whose transaction is complete.

use super::describe::ProducerIdentity;
use super::standing::Place;
use super::warm::Ready;
use crate::sink::producing::Delivered;

/// A slot that is not written to any more, while its transaction is decided. Given back by
/// [`Slots::free`](super::Slots::free) when that is done **and recorded**; dropped, its id is not used again.
#[derive(Debug)]
pub struct FrozenSlot {
    place: Place,
    ready: Ready,
}

impl FrozenSlot {
    pub(super) fn new(place: Place, ready: Ready) -> Self {
        Self { place, ready }
    }

    /// Returns its transactional id.
    pub fn id(&self) -> &str {
        &self.ready.id
    }

    /// Returns who its transaction is.
    pub fn identity(&self) -> ProducerIdentity {
        self.ready.identity
    }

    /// Returns what brokers have acknowledged of it.
    pub fn delivered(&self) -> Delivered {
        self.ready.producer.delivered()
    }

    /// Lets go of the producer, whose client ends on its own thread.
    pub(super) fn into_number(self) -> u32 {
        self.place.free()
    }
}
