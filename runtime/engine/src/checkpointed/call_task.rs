//! The task of one subtask of an async step in a job with checkpoints.
//!
//! ```text
//!            ┌─ what waits for room ─┬─ what is in flight, done or not ─┐
//!  … r9 ▮n ─▶│ r8 r7                 │ r6 r5 W4 r3                      │─▶ ▮n r3 …     a barrier overtakes them all:
//!            └──────────── stored with checkpoint n ────────────────────┘               they are its state
//! ```

use std::pin::pin;

use levada_core::async_io::{Left, Outcome};
use levada_core::{
    Barrier, BarrierKind, Batch, CheckpointId, ErrorChain, Refused, State, Storable, StreamElement,
    StreamStatus, Timestamp,
};
use tokio_util::sync::CancellationToken;

use super::backlog::Backlog;
use super::control::{Command, Commands, Event, Events, Participant, Snapshot};
use super::failpoint::holds_inputs;
use super::held::{Held, Restored, load};
use super::inlet::Inlet;
use super::outlet::Outlet;
use super::restoring::{Holding, Turn};
use crate::async_io::{Gathered, HeldElement, InLine, Intake, Tag};
use crate::error::JobError;
use crate::message::Stopped;

/// What stands in line between records.
pub(super) enum Mark {
    Watermark(Timestamp),
    Status(StreamStatus),
    Refused(Refused),
    End,
    /// Behind the end of the stream: the job is told to stop when everything has left.
    Barrier(Barrier),
}

impl InLine for Mark {
    fn takes_room(&self) -> bool {
        matches!(self, Mark::Watermark(_) | Mark::Status(_) | Mark::Refused(_))
    }

    fn is_end(&self) -> bool {
        matches!(self, Mark::End)
    }
}

pub(super) struct CallTask<A, O> {
    pub(super) participant: Participant,
    pub(super) intake: Intake<A, O, Mark>,
    pub(super) inlet: Inlet<A>,
    pub(super) restored: State,
    pub(super) commands: Commands,
    pub(super) events: Events,
    pub(super) cancel: CancellationToken,
    pub(super) standing: Standing,
    /// When it may call.
    pub(super) turn: Turn,
    /// Inputs that have moved from another subtask, until they have left.
    pub(super) holding: Option<Holding>,
    /// Inputs that barriers have overtaken while they waited for room.
    pub(super) backlog: Backlog,
}

/// How far a task has come.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// All tasks have opened.
    has_begun: bool,
    /// A checkpoint was triggered whose barrier has not come. Until then whatever stands in front of it is taken out of the
    /// channel, be there room for it or not: a call that is stuck does not hold up a checkpoint. The sources have been told to
    /// send the barrier next, so it is not much; and behind it they wait, see [`backlog`](super::backlog).
    awaited: Option<CheckpointId>,
    /// The newest barrier that has come.
    passed: Option<CheckpointId>,
    /// The end of the stream waits in line.
    holds_end: bool,
    /// The job was told to stop: what has not left is in its last checkpoint.
    has_stopped: bool,
}

/// What the task waited for.
enum Wakeup<A> {
    Told(Option<Command>),
    Progress,
    Came(Result<StreamElement<A>, Stopped>),
}

impl<A: Storable + Send + Sync + 'static, O: Send + 'static> CallTask<A, O> {
    /// Runs until it is told to close, or cancelled, or an error. Calls in flight are dropped then.
    pub(super) async fn run(mut self, outlet: Outlet<O>) {
        let cancel = self.cancel.clone();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.serve(outlet) => outcome,
        };
        if let Err(Stopped::Error(error)) = outcome {
            tracing::debug!(error = %ErrorChain(&error), "async step failed");
            // Nobody listens when the job has ended.
            self.events.send(Event::Failed(error)).ok();
        }
    }

    async fn serve(&mut self, mut outlet: Outlet<O>) -> Result<(), Stopped> {
        let function = self.intake.flight.function();
        function.open().await.map_err(|cause| self.failed(None, cause))?;
        self.restore()?;
        self.tell(Event::Opened)?;
        loop {
            if self.is_working() {
                self.work(&mut outlet).await?;
            }
            if self.holding.is_some() && self.intake.is_empty() {
                self.holding = None;
            }
            if self.intake.is_clear() {
                self.backlog.end();
            }
            let (is_working, has_turn) = (self.is_working(), self.turn.has_come());
            // What was restored comes first, and what has come waits where it stands.
            let may_take =
                self.standing.has_begun && (self.intake.is_clear() || self.standing.awaited.is_some());
            let wakeup = tokio::select! {
                biased;
                command = self.commands.recv() => Wakeup::Told(command),
                () = self.intake.flight.progress(), if is_working => Wakeup::Progress,
                element = self.inlet.next(), if may_take => Wakeup::Came(element),
                () = self.turn.comes(), if !has_turn => Wakeup::Progress,
            };
            match wakeup {
                Wakeup::Told(Some(Command::Close) | None) => return Ok(()),
                Wakeup::Told(Some(command)) => self.told(command)?,
                Wakeup::Progress => {}
                Wakeup::Came(element) => self.take(element?, &mut outlet).await?,
            }
        }
    }

    fn is_working(&mut self) -> bool {
        self.standing.has_begun && !self.standing.has_stopped && self.turn.has_come()
    }

    /// Puts what was restored first in line.
    fn restore(&mut self) -> Result<(), Stopped> {
        let restored = load(&std::mem::take(&mut self.restored)).map_err(|cause| {
            let uid = self.participant.uid.clone();
            Stopped::Error(JobError::State { uid, cause })
        })?;
        let inputs = restored.iter().filter(|element| matches!(element, Restored::Record(_))).count();
        if inputs > 0 {
            let Participant { uid, subtask } = &self.participant;
            tracing::info!(step = %uid, subtask, inputs, "inputs that had not left are called again");
        }
        for element in restored {
            match element {
                Restored::Record(batch) => self.intake.batch(batch),
                Restored::Watermark(watermark) => self.intake.mark(Mark::Watermark(watermark)),
                Restored::Refused(refused) => self.intake.mark(Mark::Refused(refused)),
            }
        }
        Ok(())
    }

    fn told(&mut self, command: Command) -> Result<(), Stopped> {
        let standing = &mut self.standing;
        match command {
            Command::Start => standing.has_begun = true,
            Command::Expect(checkpoint) if standing.passed.is_none_or(|passed| passed < checkpoint) => {
                standing.awaited = standing.awaited.max(Some(checkpoint));
            }
            Command::Aborted(checkpoint) if standing.awaited.is_some_and(|awaited| awaited <= checkpoint) => {
                standing.awaited = None;
            }
            Command::Complete(checkpoint) => {
                self.tell(Event::Handled(self.participant.clone(), checkpoint))?
            }
            _ => {}
        }
        Ok(())
    }

    /// Lets in, calls, and sends what may leave.
    async fn work(&mut self, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        loop {
            self.intake.fill();
            self.emit(outlet).await?;
            if let Some((tag, cause)) = self.intake.flight.operator.failed() {
                return Err(self.failed(Some(tag), cause.clone()));
            }
            // What has left may have made room, and a mark that has found it may leave at once.
            if !self.intake.fill() || !self.is_working() {
                return Ok(());
            }
        }
    }

    async fn take(&mut self, element: StreamElement<A>, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        match element {
            StreamElement::Batch(batch) => self.intake.batch(batch),
            StreamElement::Watermark(watermark) => self.intake.mark(Mark::Watermark(watermark)),
            StreamElement::Status(status) => self.intake.mark(Mark::Status(status)),
            StreamElement::Refused(refused) => self.intake.mark(Mark::Refused(refused)),
            StreamElement::End => {
                self.standing.holds_end = true;
                self.intake.mark(Mark::End);
            }
            StreamElement::Barrier(barrier) => {
                let checkpoint = barrier.checkpoint;
                self.standing.passed = self.standing.passed.max(Some(checkpoint));
                if self.standing.awaited.is_some_and(|awaited| awaited <= checkpoint) {
                    self.standing.awaited = None;
                }
                match self.standing.holds_end && barrier.kind == BarrierKind::Stop {
                    // The stream has come to its end, so nobody would take up what has not left.
                    true => self.intake.mark(Mark::Barrier(barrier)),
                    false => self.barrier(barrier, outlet).await?,
                }
            }
            // An offer to commit has no business here.
            _ => {}
        }
        Ok(())
    }

    /// Stores what has not left, and lets the barrier overtake it.
    async fn barrier(&mut self, barrier: Barrier, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        let state = self.held();
        self.send(StreamElement::Barrier(barrier), outlet).await?;
        self.standing.has_stopped |= barrier.kind == BarrierKind::Stop;
        if !self.intake.is_clear() {
            self.backlog.begin();
        }
        let snapshot = Box::new(Snapshot { state, ..Snapshot::default() });
        self.tell(Event::Acked(self.participant.clone(), barrier.checkpoint, snapshot))
    }

    fn held(&self) -> State {
        if !holds_inputs() {
            return State::new();
        }
        let mut held = Held::of(self.participant.subtask).moved(self.holding.is_some());
        self.intake.for_each_held(|element| match element {
            HeldElement::Record(item, tag) => held.record(&tag.original(), item),
            HeldElement::Mark(Mark::Watermark(watermark)) => held.watermark(*watermark),
            HeldElement::Mark(Mark::Refused(refused)) => held.refused(refused),
            // The source says it again: whether records are to be expected, and that it is at its end.
            HeldElement::Mark(Mark::Status(_) | Mark::End | Mark::Barrier(_)) => {}
        });
        held.state()
    }

    /// Sends everything that may leave.
    async fn emit(&mut self, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        let mut gathered = Gathered::new();
        loop {
            let Some(left) = self.intake.flight.pop() else {
                // Answers may come while a batch is sent, and nothing else would wake the task for them.
                match gathered.take() {
                    Some(batch) => self.send_batch(Some(batch), outlet).await?,
                    None => return Ok(()),
                }
                continue;
            };
            match left {
                Left::Result(pending, Outcome::Outputs(outputs)) => {
                    let before = gathered.push(&pending.tag, outputs);
                    self.send_batch(before, outlet).await?;
                }
                Left::Result(pending, Outcome::Refused(error)) => {
                    self.send_batch(gathered.take(), outlet).await?;
                    self.send(StreamElement::Refused(pending.tag.refused(error)), outlet).await?;
                }
                Left::Result(pending, Outcome::Failed(cause)) => {
                    // What stands before it has its result.
                    self.send_batch(gathered.take(), outlet).await?;
                    return Err(self.failed(Some(&pending.tag), cause));
                }
                // Dropped by policy, and counted.
                Left::Result(_, _) => {}
                Left::Mark(mark) => {
                    self.send_batch(gathered.take(), outlet).await?;
                    self.mark(mark, outlet).await?;
                }
            }
        }
    }

    async fn mark(&mut self, mark: Mark, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        match mark {
            Mark::Watermark(watermark) => self.send(StreamElement::Watermark(watermark), outlet).await,
            Mark::Status(status) => self.send(StreamElement::Status(status), outlet).await,
            Mark::Refused(refused) => self.send(StreamElement::Refused(refused), outlet).await,
            Mark::Barrier(barrier) => self.barrier(barrier, outlet).await,
            Mark::End => {
                self.standing.holds_end = false;
                self.send(StreamElement::End, outlet).await?;
                self.tell(Event::Ended(self.participant.clone()))
            }
        }
    }

    async fn send_batch(&mut self, batch: Option<Batch<O>>, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        match batch {
            Some(batch) => self.send(StreamElement::Batch(batch), outlet).await,
            None => Ok(()),
        }
    }

    /// Sends an element; calls go on while those behind are busy.
    async fn send(&mut self, element: StreamElement<O>, outlet: &mut Outlet<O>) -> Result<(), Stopped> {
        let mut sending = pin!(outlet.send(element));
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                () = self.intake.flight.progress() => {}
            }
        }
    }

    fn tell(&self, event: Event) -> Result<(), Stopped> {
        self.events.send(event).map_err(|_| Stopped::PeerGone)
    }

    fn failed(&self, tag: Option<&Tag>, cause: levada_core::async_io::CallError) -> Stopped {
        let Participant { uid, subtask } = self.participant.clone();
        Stopped::Error(JobError::Call { uid, subtask, coordinates: tag.map(Tag::coordinates), cause })
    }
}
