//! The driver of an atomic sink: the writing half of a subtask.

use std::sync::Arc;

use levada_core::{AtomicSink, CommitPoint, Committed, SinkContext, SinkError, SplitId, StreamElement};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::balance::Balance;
use crate::error::JobError;
use crate::message::{Body, Generation, Message, Stopped};
use crate::policy::CommitPolicy;
use crate::progress::Progress;

pub(crate) struct AtomicDriver<K, T> {
    pub(crate) uid: String,
    pub(crate) sink: K,
    pub(crate) policy: CommitPolicy,
    pub(crate) from_reader: mpsc::Receiver<Message<T>>,
    pub(crate) generation: Generation,
    pub(crate) progress: Arc<watch::Sender<Progress>>,
    pub(crate) cancel: CancellationToken,
    pub(crate) interval: Interval,
}

/// What came in since the last commit, besides what the sink itself holds.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    /// The generation it was read under.
    generation: u64,
    /// The newest offer, with all earlier ones of this interval merged in.
    offer: Option<CommitPoint>,
    /// Whether records came behind the newest offer. They are not covered by its positions, so nothing may be
    /// committed until their own offer has come; it follows at once.
    is_past_offer: bool,
    /// When the first element came.
    began: Option<Instant>,
}

impl<K: AtomicSink<T>, T: Send + 'static> AtomicDriver<K, T> {
    /// Runs until the reader's end, or to an error; the sink is closed in each case.
    pub(crate) async fn run(mut self, ctx: SinkContext) -> Result<(), Stopped> {
        let cancel = self.cancel.clone();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Stopped::Cancelled),
            outcome = self.drive(&ctx) => outcome,
        };
        self.sink.close().await;
        outcome
    }

    async fn drive(&mut self, ctx: &SinkContext) -> Result<(), Stopped> {
        let opened = self.sink.open(ctx.clone()).await;
        self.sunk(opened, ctx)?;
        loop {
            let Some(message) = self.next_message(ctx).await? else {
                continue;
            };
            if message.generation < self.generation.current() {
                // Read before a discard that is already decided. A claim among them is obsolete as well; its reader
                // has gone on to the next one.
                self.discard();
                continue;
            }
            self.enter(message.generation);
            match message.body {
                Body::Element(StreamElement::End) => return Ok(()),
                Body::Element(element) => self.take(element, ctx).await?,
                Body::Claim {
                    release,
                    assignment,
                    reply,
                } => {
                    self.sink.release(&release);
                    let claimed = self.sink.claim(&assignment).await;
                    let positions = self.sunk(claimed, ctx)?;
                    self.progress.send_modify(|progress| {
                        progress.ends.merge(assignment.ends.clone());
                        for (split, position) in &positions {
                            if progress.started_at.get(split).is_none() {
                                progress.started_at.set(split.clone(), position.clone());
                            }
                            progress.positions.set(split.clone(), position.clone());
                        }
                    });
                    // A reader that stopped waiting has raised the generation or is gone.
                    let _ = reply.send(positions);
                }
                Body::Settle { release, reply } => self.settle(&release, reply),
            }
        }
    }

    /// Waits for a message; commits by age meanwhile and then returns nothing.
    async fn next_message(&mut self, ctx: &SinkContext) -> Result<Option<Message<T>>, Stopped> {
        let received = match self.commit_deadline() {
            Some(deadline) => match timeout_at(deadline, self.from_reader.recv()).await {
                Ok(received) => received,
                Err(_) => {
                    self.commit(ctx).await?;
                    return Ok(None);
                }
            },
            None => self.from_reader.recv().await,
        };
        received.map(Some).ok_or(Stopped::PeerGone)
    }

    /// Returns when the open interval must be committed, if it can be.
    fn commit_deadline(&self) -> Option<Instant> {
        let can_commit = self.interval.offer.is_some() && !self.interval.is_past_offer;
        let began = self.interval.began.filter(|_| can_commit)?;
        Some(began + self.policy.max_age(self.sink.pending()))
    }

    async fn take(&mut self, element: StreamElement<T>, ctx: &SinkContext) -> Result<(), Stopped> {
        self.interval.began.get_or_insert_with(Instant::now);
        match element {
            StreamElement::Batch(batch) => {
                self.interval.is_past_offer = true;
                let written = self.sink.write(batch).await;
                self.sunk(written, ctx)
            }
            StreamElement::Refused(refused) => Err(Stopped::Error(JobError::Refused {
                coordinates: refused.coordinates(),
                reason: refused.reason,
            })),
            StreamElement::CommitPoint(newer) => {
                self.interval.is_past_offer = false;
                let is_forced = newer.is_forced;
                match &mut self.interval.offer {
                    Some(offer) => offer.merge(newer),
                    None => self.interval.offer = Some(newer),
                }
                let is_late = self
                    .commit_deadline()
                    .is_some_and(|deadline| deadline <= Instant::now());
                if is_forced || is_late || self.policy.is_full(self.sink.pending()) {
                    self.commit(ctx).await?;
                }
                Ok(())
            }
            StreamElement::End | _ => Ok(()),
        }
    }

    /// Commits at the newest offer: rows and positions, all or nothing.
    async fn commit(&mut self, ctx: &SinkContext) -> Result<(), Stopped> {
        if self.interval.generation < self.generation.current() {
            self.discard();
            return Ok(());
        }
        let Some(offer) = self.interval.offer.take() else {
            return Ok(());
        };
        let interval = std::mem::take(&mut self.interval);
        self.interval.generation = interval.generation;
        let has_rows = self.sink.pending().rows > 0;
        if offer.positions.is_empty() && !has_rows {
            return Ok(());
        }
        match self.sink.commit(&offer.positions).await {
            Ok(committed) => self.committed(offer, committed),
            Err(fenced) if fenced.is_fenced() && interval.generation < self.generation.current() => {
                // The split was taken by somebody to whom it was given: not a fight over one pipeline's name.
                tracing::info!(reason = %fenced, "open interval discarded");
                self.discard();
                Ok(())
            }
            Err(error) => self.sunk(Err(error), ctx),
        }
    }

    fn committed(&mut self, offer: CommitPoint, committed: Committed) -> Result<(), Stopped> {
        let mut interval = Balance::default();
        interval.add(offer.tally, committed);
        self.progress.send_modify(|progress| {
            progress.balance.merge(interval);
            progress.positions.merge(offer.positions);
            progress.commits += 1;
        });
        if cfg!(debug_assertions) {
            interval
                .check()
                .map_err(|unbalanced| Stopped::Error(unbalanced.into()))?;
        }
        Ok(())
    }

    fn settle(&mut self, release: &[SplitId], reply: oneshot::Sender<()>) {
        self.sink.release(release);
        let _ = reply.send(());
    }

    fn discard(&mut self) {
        self.sink.discard();
        self.interval = Interval {
            generation: self.generation.current(),
            ..Interval::default()
        };
    }

    fn enter(&mut self, generation: u64) {
        if self.interval.generation < generation {
            self.discard();
        }
    }

    fn sunk<V>(&self, outcome: Result<V, SinkError>, ctx: &SinkContext) -> Result<V, Stopped> {
        outcome.map_err(|cause| {
            Stopped::Error(JobError::Sink {
                uid: self.uid.clone(),
                subtask: ctx.subtask,
                cause,
            })
        })
    }
}
