//! The task of one subtask of a sink.

use std::sync::Arc;

use levada_core::template::WriteContext;
use levada_core::{Barrier, Clock, ErrorChain, StreamElement};
use tokio_util::sync::CancellationToken;

use super::control::{Command, Commands, Event, Events, Participant, Snapshot};
use super::inlet::Inlet;
use crate::closing::close_in_time;
use crate::driver::{DriverContext, DriverError, Restored, SinkDriver};
use crate::error::JobError;
use crate::map::Chain;
use crate::message::Stopped;
use crate::time::StageReport;

pub(crate) struct SinkTask<I, T, D> {
    pub(crate) participant: Participant,
    pub(crate) inlet: Inlet<I>,
    /// Steps behind an exchange.
    pub(crate) chain: Box<dyn Chain<I, T>>,
    pub(crate) driver: D,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where it notes the watermark, and what came behind it.
    pub(crate) report: StageReport,
    pub(crate) commands: Commands,
    pub(crate) events: Events,
    pub(crate) cancel: CancellationToken,
}

/// What the task waited for.
enum Wakeup<I> {
    Told(Option<Command>),
    Came(Result<StreamElement<I>, Stopped>),
}

impl<I: Send + 'static, T: Send + 'static, D: SinkDriver<T>> SinkTask<I, T, D> {
    /// Runs until it is told to close, or cancelled, or an error; the driver is closed in each case.
    pub(crate) async fn run(mut self, ctx: DriverContext, restored: Option<Restored>) {
        let cancel = self.cancel.clone();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.serve(ctx, restored) => outcome,
        };
        close_in_time("sink", self.driver.close()).await;
        // Nobody listens when the job has ended.
        self.events.send(Event::Closed(self.participant.clone(), self.driver.tally())).ok();
        if let Err(Stopped::Error(error)) = outcome {
            tracing::debug!(error = %ErrorChain(&error), "sink task failed");
            self.events.send(Event::Failed(error)).ok();
        }
    }

    async fn serve(&mut self, ctx: DriverContext, restored: Option<Restored>) -> Result<(), Stopped> {
        let opened = self.driver.open(ctx, restored).await;
        self.driven(opened)?;
        self.tell(Event::Opened)?;
        loop {
            let wakeup = tokio::select! {
                biased;
                command = self.commands.recv() => Wakeup::Told(command),
                element = self.inlet.next() => Wakeup::Came(element),
            };
            match wakeup {
                Wakeup::Told(Some(Command::Complete(checkpoint))) => {
                    let handled = self.driver.complete(checkpoint).await;
                    self.driven(handled)?;
                    self.tell(Event::Handled(self.participant.clone(), checkpoint))?;
                }
                Wakeup::Told(Some(Command::Aborted(checkpoint))) => self.driver.aborted(checkpoint),
                Wakeup::Told(Some(Command::Close) | None) => return Ok(()),
                Wakeup::Told(Some(Command::Start | Command::Expect(_) | Command::Inject { .. })) => {}
                Wakeup::Came(element) => self.take(element?).await?,
            }
        }
    }

    async fn take(&mut self, element: StreamElement<I>) -> Result<(), Stopped> {
        match element {
            StreamElement::Batch(batch) => {
                let produced = self.chain.process(batch);
                for element in produced.elements {
                    self.write(element).await?;
                }
                produced.failure.map_or(Ok(()), |failure| Err(Stopped::Error(failure)))
            }
            StreamElement::Refused(refused) => Err(Stopped::Error(JobError::Refused {
                coordinates: refused.coordinates(),
                reason: refused.reason,
            })),
            StreamElement::Barrier(barrier) => self.barrier(barrier).await,
            StreamElement::End => {
                let finished = self.driver.finish().await;
                self.driven(finished)?;
                self.tell(Event::Ended(self.participant.clone()))
            }
            // The inlet keeps it for the writes.
            StreamElement::Watermark(watermark) => {
                self.report.reached(watermark);
                Ok(())
            }
            // Nobody here acts on idleness.
            _ => Ok(()),
        }
    }

    async fn write(&mut self, element: StreamElement<T>) -> Result<(), Stopped> {
        match element {
            StreamElement::Batch(batch) => {
                let ctx =
                    WriteContext { processing_time: self.clock.now(), watermark: self.inlet.watermark() };
                self.report.count_late(&batch);
                let written = self.driver.write(batch, &ctx).await;
                self.driven(written)
            }
            StreamElement::Refused(refused) => Err(Stopped::Error(JobError::Refused {
                coordinates: refused.coordinates(),
                reason: refused.reason,
            })),
            // A chain makes nothing else.
            _ => Ok(()),
        }
    }

    async fn barrier(&mut self, barrier: Barrier) -> Result<(), Stopped> {
        let stored = self.driver.barrier(barrier.checkpoint, barrier.triggered_at).await;
        let state = self.driven(stored)?;
        let (pending, written) = (self.driver.pending(), self.driver.tally().written);
        let snapshot = Box::new(Snapshot { state, pending, written, ..Snapshot::default() });
        self.tell(Event::Acked(self.participant.clone(), barrier.checkpoint, snapshot))
    }

    fn tell(&self, event: Event) -> Result<(), Stopped> {
        self.events.send(event).map_err(|_| Stopped::PeerGone)
    }

    fn driven<V>(&self, outcome: Result<V, DriverError>) -> Result<V, Stopped> {
        outcome.map_err(|cause| {
            let Participant { uid, subtask } = self.participant.clone();
            Stopped::Error(JobError::CheckpointedSink { uid, subtask, cause: Box::new(cause) })
        })
    }
}
