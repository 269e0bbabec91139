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
use crate::map::Chain;
use crate::message::Stopped;

pub(crate) struct SourceTask<I, T> {
    pub(crate) participant: Participant,
    pub(crate) input: Box<dyn Input<I>>,
    pub(crate) chain: Box<dyn Chain<I, T>>,
    pub(crate) outlet: Outlet<T>,
    pub(crate) commands: Commands,
    pub(crate) events: Events,
    pub(crate) cancel: CancellationToken,
}

/// What the task waited for.
enum Wakeup {
    Told(Option<Command>),
    Read(Result<Read, SourceError>),
}

impl<I: Send + 'static, T: Send + 'static> SourceTask<I, T> {
    /// Runs until it is told to close, or cancelled, or an error; the source is closed in each case.
    pub(crate) async fn run(mut self, ctx: SourceContext, restored: State) {
        let cancel = self.cancel.clone();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.serve(ctx, restored) => outcome,
        };
        close_in_time("source", self.input.close()).await;
        if let Err(Stopped::Error(error)) = outcome {
            tracing::debug!(error = %ErrorChain(&error), "source task failed");
            // Nobody listens when the job has ended.
            self.events.send(Event::Failed(error)).ok();
        }
    }

    async fn serve(&mut self, ctx: SourceContext, restored: State) -> Result<(), Stopped> {
        let opened = self.input.open(ctx, restored).await;
        self.sourced(opened)?;
        self.tell(Event::Opened)?;
        let (mut is_reading, mut has_ended) = (false, false);
        let mut out = Vec::new();
        loop {
            // A command first: a source that always has records must not starve the checkpoints.
            let wakeup = tokio::select! {
                biased;
                command = self.commands.recv() => Wakeup::Told(command),
                read = self.input.next(&mut out), if is_reading => Wakeup::Read(read),
            };
            match wakeup {
                Wakeup::Told(Some(Command::Start)) => is_reading = true,
                Wakeup::Told(Some(Command::Inject { barrier, drain })) => {
                    let state = self.input.snapshot(barrier.checkpoint, &mut out);
                    self.hand_on(&mut out).await?;
                    if drain && !has_ended {
                        has_ended = true;
                        self.drain().await?;
                    }
                    self.mark(barrier, state).await?;
                    is_reading &= barrier.kind != BarrierKind::Stop;
                }
                Wakeup::Told(Some(Command::Complete(checkpoint))) => {
                    let handled = self.input.complete(checkpoint).await;
                    self.sourced(handled)?;
                    self.tell(Event::Handled(self.participant.clone(), checkpoint))?;
                }
                Wakeup::Told(Some(Command::Aborted(_))) => {}
                Wakeup::Told(Some(Command::Close) | None) => return Ok(()),
                Wakeup::Read(read) => {
                    let read = self.sourced(read)?;
                    self.hand_on(&mut out).await?;
                    if read == Read::End {
                        (is_reading, has_ended) = (false, true);
                        self.send(StreamElement::End).await?;
                        self.tell(Event::Ended(self.participant.clone()))?;
                    }
                }
            }
        }
    }

    /// Marks the point between two records in the stream, and hands over what is stored of it.
    async fn mark(&mut self, barrier: Barrier, state: State) -> Result<(), Stopped> {
        self.send(StreamElement::Barrier(barrier)).await?;
        let positions = self.input.positions();
        let snapshot = Box::new(Snapshot { state, positions, ..Snapshot::default() });
        self.tell(Event::Acked(self.participant.clone(), barrier.checkpoint, snapshot))
    }

    /// Brings event time, and the stream, to their end. An idle source counts again for that.
    async fn drain(&mut self) -> Result<(), Stopped> {
        self.send(StreamElement::Status(StreamStatus::Active)).await?;
        self.send(StreamElement::Watermark(Timestamp(i64::MAX))).await?;
        self.send(StreamElement::End).await?;
        self.tell(Event::Ended(self.participant.clone()))
    }

    /// Runs the steps over what was read, and sends what came of it.
    async fn hand_on(&mut self, out: &mut Vec<StreamElement<I>>) -> Result<(), Stopped> {
        for element in out.drain(..) {
            match element {
                StreamElement::Batch(batch) => {
                    for element in self.chain.process(batch).elements {
                        self.outlet.send(element).await?;
                    }
                }
                StreamElement::Watermark(watermark) => {
                    self.outlet.send(StreamElement::Watermark(watermark)).await?;
                }
                StreamElement::Status(status) => self.outlet.send(StreamElement::Status(status)).await?,
                StreamElement::Refused(refused) => self.outlet.send(StreamElement::Refused(refused)).await?,
                // An input makes nothing else.
                _ => {}
            }
        }
        Ok(())
    }

    async fn send(&mut self, element: StreamElement<T>) -> Result<(), Stopped> {
        self.outlet.send(element).await
    }

    fn tell(&self, event: Event) -> Result<(), Stopped> {
        self.events.send(event).map_err(|_| Stopped::PeerGone)
    }

    fn sourced<V>(&self, outcome: Result<V, SourceError>) -> Result<V, Stopped> {
        outcome.map_err(|cause| {
            let Participant { uid, subtask } = self.participant.clone();
            Stopped::Error(JobError::Source { uid, subtask, cause })
        })
    }
}
