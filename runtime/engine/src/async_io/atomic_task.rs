//! The task of an async step between a reader and an atomic sink.
//!
//! A commit point stands in line: it leaves behind every output of the inputs before it, and in front of all others. So its
//! sink commits what its positions cover, whatever order results come in.

use std::pin::pin;
use std::sync::Arc;

use levada_core::async_io::{Left, Outcome};
use levada_core::{CommitPoint, Refused, SplitId, StreamElement, StreamStatus, Tally, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::callable::Callable;
use super::pipeline::Outflow;
use super::{Gathered, InLine, Intake, Tag};
use crate::error::JobError;
use crate::message::{Body, Generation, Message, Stopped};

/// What stands in line between records.
pub(crate) enum Mark {
    Watermark(Timestamp),
    Status(StreamStatus),
    Refused(Refused),
    CommitPoint(CommitPoint),
    Settle { release: Vec<SplitId>, reply: oneshot::Sender<()> },
    End,
}

impl InLine for Mark {
    fn takes_room(&self) -> bool {
        matches!(self, Mark::Watermark(_) | Mark::Status(_) | Mark::Refused(_))
    }

    fn is_end(&self) -> bool {
        matches!(self, Mark::End)
    }

    /// Two offers with nothing between them are one, so there are never more of them than records.
    fn merge(&mut self, behind: Self) -> Option<Self> {
        match (self, behind) {
            (Mark::CommitPoint(first), Mark::CommitPoint(second)) => {
                first.merge(second);
                None
            }
            (_, behind) => Some(behind),
        }
    }
}

impl<O> From<Mark> for Body<O> {
    fn from(mark: Mark) -> Self {
        Body::Element(match mark {
            Mark::Watermark(watermark) => StreamElement::Watermark(watermark),
            Mark::Status(status) => StreamElement::Status(status),
            Mark::Refused(refused) => StreamElement::Refused(refused),
            Mark::CommitPoint(point) => StreamElement::CommitPoint(point),
            Mark::End => StreamElement::End,
            Mark::Settle { release, reply } => return Body::Settle { release, reply },
        })
    }
}

pub(crate) struct CallTask<A, O> {
    pub(crate) uid: String,
    pub(crate) subtask: u32,
    pub(crate) function: Arc<dyn Callable<A, O>>,
    pub(crate) intake: Intake<A, O, Mark>,
    pub(crate) from: mpsc::Receiver<Message<A>>,
    /// The steps behind, and the channel behind them.
    pub(crate) to: Box<dyn Outflow<O>>,
    pub(crate) generation: Generation,
    pub(crate) stop: CancellationToken,
    pub(crate) cancel: CancellationToken,
}

/// What has left since the last commit point, and under which generation.
struct Course {
    generation: u64,
    tally: Tally,
    raised: watch::Receiver<u64>,
    /// The reader's end has come: nothing follows.
    has_ended: bool,
}

impl<A: Send + Sync + 'static, O: Send + 'static> CallTask<A, O> {
    /// Runs until the reader's end has left, or to an error.
    pub(crate) async fn run(mut self) -> Result<(), Stopped> {
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.serve() => outcome,
        }
    }

    async fn serve(&mut self) -> Result<(), Stopped> {
        let (stop, function) = (self.stop.clone(), Arc::clone(&self.function));
        tokio::select! {
            biased;
            opened = function.open() => opened.map_err(|cause| self.failed(None, cause))?,
            // Nothing has left that would have to be committed.
            () = stop.cancelled() => return self.until_end().await,
        }
        let raised = self.generation.watch();
        let generation = *raised.borrow();
        let mut course = Course { generation, tally: Tally::default(), raised, has_ended: false };
        loop {
            self.intake.fill();
            if self.emit(&mut course).await? {
                return Ok(());
            }
            if let Some((tag, cause)) = self.intake.flight.operator.failed() {
                return Err(self.failed(Some(tag), cause.clone()));
            }
            // What has left may have made room, and a mark that has found it may leave at once.
            if self.intake.fill() {
                continue;
            }
            tokio::select! {
                biased;
                // Its sender is the reader's, which ends with a last message.
                Ok(()) = course.raised.changed() => {}
                () = self.intake.flight.progress() => {}
                message = self.from.recv(), if self.intake.is_clear() && !course.has_ended => {
                    let message = message.ok_or(Stopped::PeerGone)?;
                    self.take(message, &mut course).await?;
                }
            }
            self.drop_if_obsolete(&mut course);
        }
    }

    /// Waits for the reader's end, and hands it on.
    async fn until_end(&mut self) -> Result<(), Stopped> {
        loop {
            let Some(Message { generation, body }) = self.from.recv().await else {
                return Err(Stopped::PeerGone);
            };
            if matches!(body, Body::Element(StreamElement::End)) {
                self.to.send(Message { generation, body: Mark::End.into() }).await?;
                return Ok(());
            }
        }
    }

    /// What was read before a discard is dropped, its calls included.
    fn drop_if_obsolete(&mut self, course: &mut Course) {
        let current = self.generation.current();
        if course.generation < current {
            self.intake.clear();
            (course.generation, course.tally) = (current, Tally::default());
        }
    }

    async fn take(&mut self, message: Message<A>, course: &mut Course) -> Result<(), Stopped> {
        self.drop_if_obsolete(course);
        let Message { generation, body } = message;
        if generation < course.generation {
            // A claim among them is obsolete as well.
            return Ok(());
        }
        match body {
            Body::Element(element) => {
                course.has_ended |= matches!(element, StreamElement::End);
                self.element(element);
            }
            Body::Settle { release, reply } => self.intake.mark(Mark::Settle { release, reply }),
            // It concerns splits of which nothing is in flight: others than before, or all after a discard.
            Body::Claim { release, assignment, reply } => {
                let body = Body::Claim { release, assignment, reply };
                self.send(Message { generation, body }).await?;
            }
        }
        Ok(())
    }

    fn element(&mut self, element: StreamElement<A>) {
        match element {
            StreamElement::Batch(batch) => self.intake.batch(batch),
            StreamElement::Watermark(watermark) => self.intake.mark(Mark::Watermark(watermark)),
            StreamElement::Status(status) => self.intake.mark(Mark::Status(status)),
            StreamElement::Refused(refused) => self.intake.mark(Mark::Refused(refused)),
            StreamElement::CommitPoint(point) => self.intake.mark(Mark::CommitPoint(point)),
            StreamElement::End => self.intake.mark(Mark::End),
            // An atomic job has no other.
            _ => {}
        }
    }

    /// Sends everything that may leave; tells whether the end has.
    async fn emit(&mut self, course: &mut Course) -> Result<bool, Stopped> {
        let mut gathered = Gathered::new();
        loop {
            let Some(left) = self.intake.flight.pop() else {
                // Answers may come while a batch is sent, and nothing else would wake the task for them.
                match gathered.take() {
                    Some(batch) => self.send_batch(Some(batch), course).await?,
                    None => return Ok(false),
                }
                continue;
            };
            match left {
                Left::Result(pending, Outcome::Outputs(outputs)) => {
                    match outputs.len() as u64 {
                        0 => course.tally.filtered += 1,
                        outputs => course.tally.expanded += outputs - 1,
                    }
                    let before = gathered.push(&pending.tag, outputs);
                    self.send_batch(before, course).await?;
                }
                Left::Result(_, Outcome::Dropped(_)) => course.tally.skipped += 1,
                Left::Result(pending, Outcome::Refused(error)) => {
                    self.send_batch(gathered.take(), course).await?;
                    self.send_mark(Mark::Refused(pending.tag.refused(error)), course).await?;
                }
                Left::Result(pending, Outcome::Failed(cause)) => {
                    return Err(self.failed(Some(&pending.tag), cause));
                }
                Left::Result(_, _) => {}
                Left::Mark(mark) => {
                    self.send_batch(gathered.take(), course).await?;
                    let is_end = mark.is_end();
                    self.send_mark(mark, course).await?;
                    if is_end {
                        return Ok(true);
                    }
                }
            }
        }
    }

    async fn send_batch(
        &mut self,
        batch: Option<levada_core::Batch<O>>,
        course: &mut Course,
    ) -> Result<(), Stopped> {
        let Some(batch) = batch else { return Ok(()) };
        let body = Body::Element(StreamElement::Batch(batch));
        let tally = self.send(Message { generation: course.generation, body }).await?;
        course.tally.add(tally);
        Ok(())
    }

    async fn send_mark(&mut self, mut mark: Mark, course: &mut Course) -> Result<(), Stopped> {
        if let Mark::CommitPoint(point) = &mut mark {
            point.tally.add(std::mem::take(&mut course.tally));
        }
        self.send(Message { generation: course.generation, body: mark.into() }).await?;
        Ok(())
    }

    /// Sends a message; calls go on while the sink is busy.
    async fn send(&mut self, message: Message<O>) -> Result<Tally, Stopped> {
        let (to, flight) = (&mut self.to, &mut self.intake.flight);
        let mut sending = pin!(to.send(message));
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                () = flight.progress() => {}
            }
        }
    }

    fn failed(&self, tag: Option<&Tag>, cause: levada_core::async_io::CallError) -> Stopped {
        let coordinates = tag.map(Tag::coordinates);
        Stopped::Error(JobError::Call { uid: self.uid.clone(), subtask: self.subtask, coordinates, cause })
    }
}
