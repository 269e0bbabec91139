//! What passes between the consumer's thread and `poll`: batches one way, commands the other.
//!
//! ```text
//!   thread ── offer (waits for room) ──▶ │ ROOM batches, news   │ ──▶ poll_take (cancel safe) ── poll
//!   thread ◀────────────── commands ──── │      unbounded       │ ◀── add, remove, pause, resume, stop
//! ```
//!
//! One lock for both: it is held for a push or a pop, never across a wait of a task. It is taken once per batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use levada_core::time::SplitEvent;
use levada_core::{BatchBuilder, Position, SourceError, SplitId};
use tokio::sync::oneshot;

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
        /// When it was ready to be handed over.
        ready: Instant,
    },
    /// How splits stand. Needs no room: news are few, and come only as fast as batches or questions do.
    News(Vec<News>),
    /// A split's bounded read has ended; its position was in a batch before.
    EndOfSplit { reading: ReadingId, split: SplitId, end: Position },
    /// The thread has ended.
    Failed(SourceError),
}

impl Handover {
    pub(super) fn is_batch(&self) -> bool {
        matches!(self, Handover::Batch { .. })
    }
}

/// How a split stands, and the reading for which that is so.
pub(super) type News = (ReadingId, SplitId, SplitEvent);

/// Counts calls of `add`, split by split: what was read for an earlier call is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ReadingId(pub(super) u64);

/// Something the thread has to do.
pub(super) enum Command {
    Add(Vec<(ReadingId, SplitId, Position)>),
    Remove(Vec<SplitId>),
    Pause(Vec<SplitId>),
    Resume(Vec<SplitId>),
    /// The user lets splits rest, or no longer.
    UserPause(Vec<SplitId>, bool),
    Stop,
}

/// A seek that `poll` has to take. It tells whether the split was read; dropped, that nobody polls any more.
pub(super) struct Seek {
    pub(super) split: SplitId,
    pub(super) position: Position,
    pub(super) done: oneshot::Sender<bool>,
}

/// What there is for `poll`.
pub(super) enum Taken {
    Handover(Handover),
    Seek(Seek),
}

/// The place where both sides meet.
#[derive(Default)]
pub(super) struct Exchange {
    inner: Mutex<Inner>,
    /// For the thread: room was made, or a command was given.
    changed: Condvar,
    /// Lets the thread look for commands without the lock while it fills a batch.
    has_commands: AtomicBool,
    is_stopped: AtomicBool,
    /// Whether the thread waits inside the client although it has something to offer, and wants to hear of room.
    wants_room: AtomicBool,
    wake: Arc<Wake>,
}

#[derive(Default)]
struct Inner {
    handovers: VecDeque<Handover>,
    /// How many of them are batches.
    batches: usize,
    commands: VecDeque<Command>,
    seeks: VecDeque<Seek>,
    has_ended: bool,
    /// Who polls, and wants to hear that something was offered or that the thread has ended. One at most, because `poll` takes
    /// `&mut`.
    waiting: Option<Waker>,
    /// Whether nobody will poll any more.
    is_closed: bool,
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
        if matches!(command, Command::Stop) {
            self.is_stopped.store(true, Ordering::Release);
        }
        self.inner().commands.push_back(command);
        self.has_commands.store(true, Ordering::Release);
        self.changed.notify_all();
        self.wake.wake();
    }

    /// Tells whether a command waits.
    pub(super) fn has_commands(&self) -> bool {
        self.has_commands.load(Ordering::Acquire)
    }

    /// Tells whether the thread is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
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

    /// Tells whether a batch may be offered.
    pub(super) fn has_room(&self) -> bool {
        self.inner().batches < ROOM
    }

    /// Waits up to `patience` for room or a command. Blocks.
    pub(super) fn wait_for_room(&self, patience: Duration) {
        let is_stuck = |inner: &mut Inner| inner.batches >= ROOM && inner.commands.is_empty();
        drop(self.changed.wait_timeout_while(self.inner(), patience, is_stuck));
    }

    /// Asks `poll` to interrupt the client's wait when it makes room.
    pub(super) fn want_room(&self, wants_room: bool) {
        self.wants_room.store(wants_room, Ordering::Release);
    }

    /// Hands something over.
    pub(super) fn offer(&self, handover: Handover) {
        let mut inner = self.inner();
        inner.batches += usize::from(handover.is_batch());
        inner.handovers.push_back(handover);
        wake(inner);
    }

    /// Gives `poll` a seek to take, unless nobody polls any more.
    pub(super) fn seek(&self, seek: Seek) {
        let mut inner = self.inner();
        if !inner.is_closed {
            inner.seeks.push_back(seek);
        }
        wake(inner);
    }

    /// Drops every seek that waits or will come: nobody polls any more.
    pub(super) fn close(&self) {
        let mut inner = self.inner();
        inner.is_closed = true;
        let seeks = std::mem::take(&mut inner.seeks);
        drop(inner);
        drop(seeks); // wakes who waits, not under the lock
    }

    /// Tells `poll` that nothing follows.
    pub(super) fn end(&self) {
        self.close();
        let mut inner = self.inner();
        inner.has_ended = true;
        wake(inner);
    }

    /// Takes the next seek or handover, or `None` when the thread has ended. Seeks first: what was read before them is stale.
    ///
    /// Takes only when it is ready: whoever gives up waiting loses nothing.
    pub(super) fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Taken>> {
        if let Some(taken) = self.try_take(cx) {
            return Poll::Ready(taken);
        }
        Poll::Pending
    }

    fn try_take(&self, cx: &Context<'_>) -> Option<Option<Taken>> {
        let mut inner = self.inner();
        if let Some(seek) = inner.seeks.pop_front() {
            return Some(Some(Taken::Seek(seek)));
        }
        let Some(handover) = inner.handovers.pop_front() else {
            if !inner.has_ended {
                inner.waiting = Some(cx.waker().clone());
            }
            return inner.has_ended.then_some(None);
        };
        inner.batches -= usize::from(handover.is_batch());
        drop(inner);
        self.changed.notify_all();
        if self.wants_room.load(Ordering::Acquire) {
            self.wake.wake();
        }
        Some(Some(Taken::Handover(handover)))
    }
}

/// Wakes who polls, not under the lock.
fn wake(mut inner: MutexGuard<'_, Inner>) {
    let waiting = inner.waiting.take();
    drop(inner);
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}
