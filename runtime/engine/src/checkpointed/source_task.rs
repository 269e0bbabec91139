//! The task of one subtask of a source, with the steps chained to it.

use levada_core::{
    Barrier, BarrierKind, ErrorChain, SourceContext, SourceError, State, StreamElement, StreamStatus,
    Timestamp,
};
use tokio_util::sync::CancellationToken;

use super::control::{Command, Commands, Event, Events, Participant, Snapshot};
use super::input::{Input, Read};
use super::outlet::Outlet;
use crate::closing::close_in_time;
use crate::error::JobError;
use crate::message::Stopped;

/// A source that is to be opened.
pub(crate) struct SourceFeed<I> {
    pub(crate) participant: Participant,
    pub(crate) input: Box<dyn Input<I>>,
    pub(crate) ctx: SourceContext,
    /// What it had stored.
    pub(crate) restored: State,
    pub(crate) commands: Commands,
}

pub(crate) struct SourceTask<I> {
    pub(crate) feed: SourceFeed<I>,
    /// The steps, and where their outcome goes.
    pub(crate) outlet: Outlet<I>,
    pub(crate) events: Events,
    pub(crate) cancel: CancellationToken,
}

/// What the task waited for.
enum Wakeup {
    Told(Option<Command>),
    Read(Result<Read, SourceError>),
}

impl<I: Send + 'static> SourceTask<I> {
    /// Runs until it is told to close, or cancelled, or an error; the source is closed in each case.
    pub(crate) async fn run(mut self) {
        let cancel = self.cancel.clone();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.serve() => outcome,
        };
        close_in_time("source", self.feed.input.close()).await;
        if let Err(Stopped::Error(error)) = outcome {
            tracing::debug!(error = %ErrorChain(&error), "source task failed");
            // Nobody listens when the job has ended.
            self.events.send(Event::Failed(error)).ok();
        }
    }

    async fn serve(&mut self) -> Result<(), Stopped> {
        let (ctx, restored) = (self.feed.ctx.clone(), std::mem::take(&mut self.feed.restored));
        let opened = self.feed.input.open(ctx, restored).await;
        self.sourced(opened)?;
        self.tell(Event::Opened)?;
        let (mut is_reading, mut has_ended) = (false, false);
        let mut out = Vec::new();
        loop {
            // A command first: a source that always has records must not starve the checkpoints.
            let wakeup = tokio::select! {
                biased;
                command = self.feed.commands.recv() => Wakeup::Told(command),
                read = self.feed.input.next(&mut out), if is_reading => Wakeup::Read(read),
            };
            match wakeup {
                Wakeup::Told(Some(Command::Start)) => is_reading = true,
                Wakeup::Told(Some(Command::Inject { barrier, drain })) => {
                    let state = self.feed.input.snapshot(barrier.checkpoint, &mut out);
                    self.hand_on(&mut out).await?;
                    if drain && !has_ended {
                        has_ended = true;
                        self.drain().await?;
                    }
                    self.mark(barrier, state).await?;
                    is_reading &= barrier.kind != BarrierKind::Stop;
                }
                Wakeup::Told(Some(Command::Complete(checkpoint))) => {
                    let handled = self.feed.input.complete(checkpoint).await;
                    self.sourced(handled)?;
                    self.tell(Event::Handled(self.feed.participant.clone(), checkpoint))?;
                }
                Wakeup::Told(Some(Command::Aborted(_))) => {}
                Wakeup::Told(Some(Command::Close) | None) => return Ok(()),
                Wakeup::Read(read) => {
                    let read = self.sourced(read)?;
                    self.hand_on(&mut out).await?;
                    if read == Read::End {
                        (is_reading, has_ended) = (false, true);
                        self.outlet.send(StreamElement::End).await?;
                        self.tell(Event::Ended(self.feed.participant.clone()))?;
                    }
                }
            }
        }
    }

    /// Marks the point between two records in the stream, and hands over what is stored of it.
    async fn mark(&mut self, barrier: Barrier, state: State) -> Result<(), Stopped> {
        self.outlet.send(StreamElement::Barrier(barrier)).await?;
        let positions = self.feed.input.positions();
        let snapshot = Box::new(Snapshot { state, positions, ..Snapshot::default() });
        self.tell(Event::Acked(self.feed.participant.clone(), barrier.checkpoint, snapshot))
    }

    /// Brings event time, and the stream, to their end. An idle source counts again for that.
    async fn drain(&mut self) -> Result<(), Stopped> {
        self.outlet.send(StreamElement::Status(StreamStatus::Active)).await?;
        self.outlet.send(StreamElement::Watermark(Timestamp(i64::MAX))).await?;
        self.outlet.send(StreamElement::End).await?;
        self.tell(Event::Ended(self.feed.participant.clone()))
    }

    /// Sends what was read.
    async fn hand_on(&mut self, out: &mut Vec<StreamElement<I>>) -> Result<(), Stopped> {
        for element in out.drain(..) {
            self.outlet.send(element).await?;
        }
        Ok(())
    }

    fn tell(&self, event: Event) -> Result<(), Stopped> {
        self.events.send(event).map_err(|_| Stopped::PeerGone)
    }

    fn sourced<V>(&self, outcome: Result<V, SourceError>) -> Result<V, Stopped> {
        outcome.map_err(|cause| {
            let Participant { uid, subtask } = self.feed.participant.clone();
            Stopped::Error(JobError::Source { uid, subtask, cause })
        })
    }
}
