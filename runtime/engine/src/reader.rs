//! The reading half of a subtask: polls the source, runs the steps, offers commit points.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_core::{
    Assignment, BatchBuilder, CommitPoint, Polled, Positions, Source, SourceContext, SourceError, SplitId,
    StreamElement, StreamStart,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::closing::close_in_time;
use crate::error::JobError;
use crate::map::Chain;
use crate::message::{Body, Generation, Message, Stopped};
use crate::time::{Ticks, TimeContext, TimeEvent, Wanted, moved, steer};

pub(crate) struct Reader<S, T> {
    pub(crate) uid: String,
    pub(crate) subtask: u32,
    pub(crate) source: S,
    pub(crate) chain: Box<dyn Chain<(), T>>,
    /// Holds a few batches: enough for decoding to overlap writing. The byte budget bounds what stands in it.
    pub(crate) to_sink: mpsc::Sender<Message<T>>,
    pub(crate) generation: Generation,
    pub(crate) owned: Owned,
    pub(crate) offers: u64,
    pub(crate) time: TimeContext,
    pub(crate) ticks: Ticks,
    /// How long it has waited for the sink since the last tick.
    pub(crate) held_up: Duration,
    pub(crate) stop: CancellationToken,
    pub(crate) cancel: CancellationToken,
}

/// The splits of a subtask, with what a claim must say about their streams.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    splits: Vec<SplitId>,
    streams: BTreeMap<Arc<str>, StreamStart>,
    ends: Positions,
}

impl Owned {
    fn add(&mut self, assignment: &Assignment) {
        for split in &assignment.splits {
            if !self.splits.contains(split) {
                self.splits.push(split.clone());
            }
        }
        for stream in &assignment.streams {
            self.streams.insert(Arc::clone(&stream.stream), stream.clone());
        }
        self.ends.merge(assignment.ends.clone());
    }

    fn holds_any(&self, splits: &[SplitId]) -> bool {
        splits.iter().any(|split| self.splits.contains(split))
    }

    fn remove(&mut self, splits: &[SplitId]) {
        self.splits.retain(|split| !splits.contains(split));
        let is_read = |stream: &Arc<str>| self.splits.iter().any(|split| split.stream == *stream);
        self.streams.retain(|stream, _| is_read(stream));
        for split in splits {
            self.ends.remove(split);
        }
    }

    fn as_assignment(&self) -> Assignment {
        Assignment {
            splits: self.splits.clone(),
            streams: self.streams.values().cloned().collect(),
            ends: self.ends.clone(),
        }
    }
}

impl<S: Source, T: Send + 'static> Reader<S, T> {
    /// Runs to the end of the source, to a stop, or to an error; the source is closed in each case.
    pub(crate) async fn run(mut self, ctx: SourceContext) -> Result<(), Stopped> {
        let cancel = self.cancel.clone();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.read(ctx) => outcome,
        };
        close_in_time("source", self.source.close()).await;
        outcome
    }

    async fn read(&mut self, ctx: SourceContext) -> Result<(), Stopped> {
        let stop = self.stop.clone();
        self.ticks = Ticks::new(self.chain.begin_time(&self.time));
        let opened = tokio::select! {
            biased;
            opened = self.source.open(ctx) => opened,
            // Nothing was read that would have to be committed.
            () = stop.cancelled() => return self.send(Body::Element(StreamElement::End)).await,
        };
        self.sourced(opened)?;
        let mut builder = BatchBuilder::new();
        // Before its first word nobody knows whether there are splits to wait for.
        let mut has_told = false;
        loop {
            let polled = tokio::select! {
                biased;
                () = stop.cancelled() => return self.end(&mut builder).await,
                () = self.ticks.next(), if has_told => {
                    self.tick().await?;
                    continue;
                }
                polled = self.source.poll(&mut builder) => self.sourced(polled)?,
            };
            has_told = true;
            match polled {
                // It belongs to the interval that is dropped. Handing it on could wait for a busy sink.
                Polled::Lost(_) => builder = BatchBuilder::new(),
                // It is handed on within the bound.
                Polled::Revoked { .. } => {}
                // A poll that ends a split or the whole read may have moved positions past what holds no record.
                _ => self.hand_on(&mut builder).await?,
            }
            match polled {
                Polled::Assigned(assignment) => self.assigned(assignment).await?,
                Polled::Revoked { splits, within } => self.revoked(splits, within, &mut builder).await?,
                Polled::Lost(splits) => self.lost(splits).await?,
                Polled::EndOfSplit(split, _) => self.tell(TimeEvent::Removed(split)).await?,
                Polled::News(news) => {
                    for (split, event) in news {
                        self.tell(TimeEvent::Split(split, event)).await?;
                    }
                }
                Polled::End => {
                    self.tell(TimeEvent::Ended).await?;
                    return self.end(&mut builder).await;
                }
                // Batches are handed on already.
                Polled::Batch | Polled::Idle | _ => {}
            }
        }
    }

    /// Hands on what is left, and has the sink commit everything.
    async fn end(&mut self, builder: &mut BatchBuilder) -> Result<(), Stopped> {
        self.hand_on(builder).await?;
        self.offer(CommitPoint { is_forced: true, ..CommitPoint::default() }).await?;
        self.send(Body::Element(StreamElement::End)).await
    }

    async fn tick(&mut self) -> Result<(), Stopped> {
        let held_up = std::mem::take(&mut self.held_up);
        self.tell(TimeEvent::Tick { held_up }).await
    }

    /// Tells the step that keeps time, if there is one; sends what it says, and has the source do what it wants.
    async fn tell(&mut self, event: TimeEvent) -> Result<(), Stopped> {
        if !self.ticks.are_wanted() {
            return Ok(());
        }
        let mut wanted = Wanted::default();
        let produced = self.chain.time(event, &mut wanted);
        for element in produced.elements {
            self.send(Body::Element(element)).await?;
        }
        match wanted.is_empty() {
            true => Ok(()),
            false => {
                let steered = steer(&mut self.source, wanted);
                self.sourced(steered)
            }
        }
    }

    /// Runs the steps over what was read and sends the outcome, an offer to commit behind it.
    async fn hand_on(&mut self, builder: &mut BatchBuilder) -> Result<(), Stopped> {
        if builder.is_empty() {
            return Ok(());
        }
        let (batch, positions) = builder.finish();
        let read = batch.len() as u64;
        let moved = self.ticks.are_wanted().then(|| moved(&batch, &positions));
        let mut produced = self.chain.process(batch);
        if let Some(failure) = produced.failure {
            return Err(Stopped::Error(failure));
        }
        produced.tally.read += read;
        let began = moved.as_ref().map(|_| self.time.clock.now());
        for element in produced.elements {
            self.send(Body::Element(element)).await?;
        }
        if let (Some(moved), Some(began)) = (moved, began) {
            self.held_up += self.time.clock.now().since(began);
            self.tell(moved).await?;
        }
        self.offer(CommitPoint { positions, tally: produced.tally, ..CommitPoint::default() }).await
    }

    async fn offer(&mut self, point: CommitPoint) -> Result<(), Stopped> {
        self.offers += 1;
        let point = CommitPoint { id: self.offers, ..point };
        self.send(Body::Element(StreamElement::CommitPoint(point))).await
    }

    async fn assigned(&mut self, assignment: Assignment) -> Result<(), Stopped> {
        let is_read_already = self.owned.holds_any(&assignment.splits);
        self.owned.add(&assignment);
        if is_read_already {
            // The claim takes these splits back to what is committed; what was read beyond must not stay as well.
            return self.reset(Vec::new()).await;
        }
        self.claim(Vec::new(), assignment).await
    }

    /// Commits what was read of revoked splits, or drops the whole open interval when the time is up.
    async fn revoked(
        &mut self,
        splits: Vec<SplitId>,
        within: Duration,
        builder: &mut BatchBuilder,
    ) -> Result<(), Stopped> {
        self.remove(&splits).await?;
        let (reply, settled) = oneshot::channel();
        let settle = async {
            self.hand_on(builder).await?;
            self.offer(CommitPoint { is_forced: true, ..CommitPoint::default() }).await?;
            self.send(Body::Settle { release: splits.clone(), reply }).await?;
            // No answer: the splits were taken before they were committed.
            Ok(settled.await.is_ok())
        };
        let is_settled = match timeout(within, settle).await {
            Ok(outcome) => outcome?,
            Err(_) => false,
        };
        if is_settled {
            return Ok(());
        }
        tracing::warn!(?within, "revoked splits were not committed in time; their interval is discarded");
        self.reset(splits).await
    }

    /// Drops the whole open interval: nothing of splits that belong to somebody else may be committed.
    async fn lost(&mut self, splits: Vec<SplitId>) -> Result<(), Stopped> {
        self.remove(&splits).await?;
        self.reset(splits).await
    }

    async fn remove(&mut self, splits: &[SplitId]) -> Result<(), Stopped> {
        let removed = self.source.remove(splits);
        self.sourced(removed)?;
        self.owned.remove(splits);
        for split in splits {
            self.tell(TimeEvent::Removed(split.clone())).await?;
        }
        Ok(())
    }

    /// Discards, claims what is still owned, and goes on from the claimed positions.
    async fn reset(&mut self, released: Vec<SplitId>) -> Result<(), Stopped> {
        self.generation.raise();
        self.tell(TimeEvent::Restart).await?;
        self.claim(released, self.owned.as_assignment()).await
    }

    /// Claims splits and reads them from the claimed positions.
    async fn claim(&mut self, release: Vec<SplitId>, assignment: Assignment) -> Result<(), Stopped> {
        let (reply, claimed) = oneshot::channel();
        self.send(Body::Claim { release, assignment, reply }).await?;
        let Ok(positions) = claimed.await else {
            // The sink is fenced, and drops everything until the source has told of a loss: only polling goes on to
            // there. Or it has ended; then it tells why, and the job ends.
            return Ok(());
        };
        let positions: Vec<_> = positions.into_iter().collect();
        let added = self.source.add(positions.clone());
        self.sourced(added)?;
        for (split, position) in positions {
            self.tell(TimeEvent::Added(split, position.next)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, body: Body<T>) -> Result<(), Stopped> {
        let message = Message { generation: self.generation.current(), body };
        self.to_sink.send(message).await.map_err(|_| Stopped::PeerGone)
    }

    fn sourced<V>(&self, outcome: Result<V, SourceError>) -> Result<V, Stopped> {
        outcome.map_err(|cause| {
            Stopped::Error(JobError::Source { uid: self.uid.clone(), subtask: self.subtask, cause })
        })
    }
}
