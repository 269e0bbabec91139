//! What passes between the consumer's thread and `poll`: batches one way, commands the other.
//!
//! ```text
//!   thread ── offer (waits for room) ──▶ │ at most ROOM batches │ ──▶ take (async, cancel safe) ── poll
//!   thread ◀────────────── commands ──── │      unbounded       │ ◀── add, remove, pause, resume, stop
//! ```
//!
//! One lock for both: it is held for a push or a pop, never across a wait of a task. It is taken once per batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use levada_core::{BatchBuilder, Position, SourceError, SplitId};
use tokio::sync::Notify;

use super::events::Wake;

/// Batches that wait for `poll`: enough that the thread fills one while another is taken, few enough that they stay in
/// the processor's cache. The bytes are bounded by the budget, not by this.
const ROOM: usize = 4;

/// Something the thread has to tell, in order.
pub(super) enum Handover {
    /// Records and positions. The reading of split number `n` of the builder's table is `readings[n]`.
    Batch {
        builder: BatchBuilder,
        readings: Vec<ReadingId>,
        /// Whether the builder holds its permit in the budget.
        is_paid: bool,
    },
    /// A split's bounded read has ended; its position was in a batch before.
    EndOfSplit { reading: ReadingId, split: SplitId, end: Position },
    /// The thread has ended.
    Failed(SourceError),
}

/// Counts calls of `add`, split by split: what was read for an earlier call is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ReadingId(pub(super) u64);

/// Something the thread has to do.
pub(super) enum Command {
    Add(Vec<(ReadingId, SplitId, Position)>),
    Remove(Vec<SplitId>),
    Pause(Vec<SplitId>),
    Resume(Vec<SplitId>),
    Stop,
}

/// The place where both sides meet.
#[derive(Default)]
pub(super) struct Exchange {
    inner: Mutex<Inner>,
    /// For the thread: room was made, or a command was given.
    changed: Condvar,
    /// For `poll`: something was offered, or the thread has ended. One waiter at most, because `poll` takes `&mut`.
    offered: Notify,
    /// Lets the thread look for commands without the lock while it fills a batch.
    has_commands: AtomicBool,
    /// Whether the thread waits inside the client although it has something to offer, and wants to hear of room.
    wants_room: AtomicBool,
    wake: Arc<Wake>,
}

#[derive(Default)]
struct Inner {
    handovers: VecDeque<Handover>,
    commands: VecDeque<Command>,
    has_ended: bool,
}

impl Exchange {
    // A panic inside the lock can only come from an allocation: the queues are whole in any case.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what interrupts the client's wait.
    pub(super) fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Gives the thread a command and wakes it wherever it waits.
    pub(super) fn command(&self, command: Command) {
        self.inner().commands.push_back(command);
        self.has_commands.store(true, Ordering::Release);
        self.changed.notify_all();
        self.wake.wake();
    }

    /// Tells whether a command waits.
    pub(super) fn has_commands(&self) -> bool {
        self.has_commands.load(Ordering::Acquire)
    }

    /// Takes all commands.
    pub(super) fn take_commands(&self) -> VecDeque<Command> {
        let mut inner = self.inner();
        self.has_commands.store(false, Ordering::Release);
        std::mem::take(&mut inner.commands)
    }

    /// Tells whether `poll` has taken everything: what comes next should not wait for more.
    pub(super) fn is_drained(&self) -> bool {
        self.inner().handovers.is_empty()
    }

    /// Tells whether a handover may be offered.
    pub(super) fn has_room(&self) -> bool {
        self.inner().handovers.len() < ROOM
    }

    /// Waits up to `patience` for room or a command. Blocks.
    pub(super) fn wait_for_room(&self, patience: Duration) {
        let is_stuck = |inner: &mut Inner| inner.handovers.len() >= ROOM && inner.commands.is_empty();
        drop(self.changed.wait_timeout_while(self.inner(), patience, is_stuck));
    }

    /// Asks `poll` to interrupt the client's wait when it makes room.
    pub(super) fn want_room(&self, wants_room: bool) {
        self.wants_room.store(wants_room, Ordering::Release);
    }

    /// Hands something over.
    pub(super) fn offer(&self, handover: Handover) {
        self.inner().handovers.push_back(handover);
        self.offered.notify_one();
    }

    /// Tells `poll` that nothing follows.
    pub(super) fn end(&self) {
        self.inner().has_ended = true;
        self.offered.notify_one();
    }

    /// Takes the next handover, or `None` when the thread has ended.
    ///
    /// Cancel safe: it takes only in the poll in which it returns.
    pub(super) async fn take(&self) -> Option<Handover> {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.offered.notified().await;
        }
    }

    fn try_take(&self) -> Option<Option<Handover>> {
        let mut inner = self.inner();
        let Some(handover) = inner.handovers.pop_front() else {
            return inner.has_ended.then_some(None);
        };
        drop(inner);
        self.changed.notify_all();
        if self.wants_room.load(Ordering::Acquire) {
            self.wake.wake();
        }
        Some(Some(handover))
    }
}
