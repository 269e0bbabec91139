//! What the slots of a writer are doing, for whoever watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::ProducerIdentity;

/// What a slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SlotState {
    /// Its next producer is being made ready.
    Warming,
    /// Its producer is ready, and nothing was written.
    Warm,
    /// Its transaction is written to.
    Open,
    /// Its transaction is complete, and waits to be committed.
    Frozen,
    /// Its producer could not be made ready; that is tried again when a slot is needed.
    Cold,
    /// Its transaction was given up by this process. The id is not used again.
    Left,
}

/// How a slot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotStanding {
    /// What it is doing.
    pub state: SlotState,
    /// Since when.
    pub since: Instant,
    /// Who its transaction is, once that is known.
    pub identity: Option<ProducerIdentity>,
}

/// How all slots stand, by number.
pub type Standings = BTreeMap<u32, SlotStanding>;

/// Where slots note their states.
#[derive(Debug, Clone)]
pub(super) struct Board(Arc<watch::Sender<Standings>>);

impl Board {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Standings::new())))
    }

    pub(super) fn note(&self, slot: u32, state: SlotState, identity: Option<ProducerIdentity>) {
        let standing = SlotStanding { state, since: Instant::now(), identity };
        self.0.send_modify(|all| {
            all.insert(slot, standing);
        });
    }

    pub(super) fn watch(&self) -> watch::Receiver<Standings> {
        self.0.subscribe()
    }
}

/// One slot's place: it says `Left` when the slot is dropped before it was freed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: u32,
    board: Board,
    is_freed: bool,
}

impl Place {
    pub(super) fn new(number: u32, board: Board) -> Self {
        Self { number, board, is_freed: false }
    }

    pub(super) fn note(&self, state: SlotState, identity: Option<ProducerIdentity>) {
        self.board.note(self.number, state, identity);
    }

    /// Gives the number back for the next transaction.
    pub(super) fn free(mut self) -> u32 {
        self.is_freed = true;
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_freed {
            self.note(SlotState::Left, None);
        }
    }
}
