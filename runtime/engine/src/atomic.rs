//! The driver of an atomic sink: the writing half of a subtask.

use std::sync::Arc;
use std::time::Duration;

use levada_core::{
    Assignment, AtomicSink, CommitPoint, Committed, Positions, SinkContext, SinkError, SplitId,
    StreamElement, Timestamp,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::balance::Balance;
use crate::closing::close_in_time;
use crate::error::JobError;
use crate::message::{Body, Generation, Message, Stopped};
use crate::policy::CommitPolicy;
use crate::progress::Progress;
use crate::time::StageReport;

/// How long a fenced sink waits for the source to tell that the split is gone. The new owner may claim before the old
/// one hears of its loss, at the next heartbeat of its group at the latest (every 3 s). Whoever still believes to own
/// the split then is in a fight.
const LOSS_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct AtomicDriver<K, T> {
    pub(crate) uid: String,
    pub(crate) sink: K,
    pub(crate) policy: CommitPolicy,
    pub(crate) from_reader: mpsc::Receiver<Message<T>>,
    pub(crate) generation: Generation,
    pub(crate) progress: Arc<watch::Sender<Progress>>,
    pub(crate) stop: CancellationToken,
    pub(crate) cancel: CancellationToken,
    pub(crate) interval: Interval,
    pub(crate) fence: Option<Fence>,
    /// Where it notes the watermark, and what came behind it.
    pub(crate) report: StageReport,
}

/// Another owner has taken a split, and the source has not told of a loss. Everything that was sent before it does is
/// dropped.
#[derive(Debug)]
pub(crate) struct Fence {
    cause: SinkError,
    /// A later generation means that the source has told.
    generation: u64,
    until: Instant,
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
        close_in_time("sink", self.sink.close()).await;
        outcome
    }

    async fn drive(&mut self, ctx: &SinkContext) -> Result<(), Stopped> {
        let stop = self.stop.clone();
        let opened = tokio::select! {
            biased;
            opened = self.sink.open(ctx.clone()) => opened,
            () = stop.cancelled() => return self.until_end().await,
        };
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
            if self.is_fenced_off(&message, ctx)? {
                continue;
            }
            self.enter(message.generation);
            match message.body {
                Body::Element(StreamElement::End) => return Ok(()),
                Body::Element(element) => self.take(element, ctx).await?,
                Body::Claim { release, assignment, reply } => {
                    self.sink.release(&release);
                    self.claim(&assignment, reply, ctx).await?;
                }
                Body::Settle { release, reply } => self.settle(&release, reply),
            }
        }
    }

    /// Waits for the reader's end. A sink that was not opened has claimed nothing, so there is nothing to commit.
    async fn until_end(&mut self) -> Result<(), Stopped> {
        loop {
            match self.from_reader.recv().await {
                Some(Message { body: Body::Element(StreamElement::End), .. }) => return Ok(()),
                Some(_) => {}
                None => return Err(Stopped::PeerGone),
            }
        }
    }

    async fn claim(
        &mut self,
        assignment: &Assignment,
        reply: oneshot::Sender<Positions>,
        ctx: &SinkContext,
    ) -> Result<(), Stopped> {
        let positions = match self.sink.claim(assignment).await {
            Err(fenced) if fenced.is_fenced() => {
                self.raise_fence(fenced, self.interval.generation);
                return Ok(());
            }
            claimed => self.sunk(claimed, ctx)?,
        };
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
        Ok(())
    }

    /// Waits for a message; commits by age meanwhile and then returns nothing.
    async fn next_message(&mut self, ctx: &SinkContext) -> Result<Option<Message<T>>, Stopped> {
        let fenced_until = self.fence.as_ref().map(|fence| fence.until);
        let received = match fenced_until.or_else(|| self.commit_deadline()) {
            Some(deadline) => match timeout_at(deadline, self.from_reader.recv()).await {
                Ok(received) => received,
                Err(_) => {
                    self.lower_fence(ctx)?;
                    self.commit(ctx).await?;
                    return Ok(None);
                }
            },
            None => self.from_reader.recv().await,
        };
        received.map(Some).ok_or(Stopped::PeerGone)
    }

    /// Drops the open interval, and all that follows until the source has told of a loss.
    fn raise_fence(&mut self, cause: SinkError, generation: u64) {
        tracing::info!(reason = %cause, "open interval discarded");
        self.discard();
        self.fence = Some(Fence { cause, generation, until: Instant::now() + LOSS_PATIENCE });
    }

    /// Tells whether a message is to be dropped because the sink is fenced; ends the job when there is no more hope.
    fn is_fenced_off(&mut self, message: &Message<T>, ctx: &SinkContext) -> Result<bool, Stopped> {
        let is_last = matches!(message.body, Body::Element(StreamElement::End));
        match &self.fence {
            Some(fence) if fence.generation >= message.generation => {
                if is_last || fence.until <= Instant::now() {
                    self.lower_fence(ctx)?;
                }
                Ok(true)
            }
            _ => {
                self.fence = None;
                Ok(false)
            }
        }
    }

    /// Fails with what the sink was fenced with, if it is.
    fn lower_fence(&mut self, ctx: &SinkContext) -> Result<(), Stopped> {
        self.fence.take().map_or(Ok(()), |fence| self.sunk(Err(fence.cause), ctx))
    }

    /// Returns when the open interval must be committed, if it can be.
    fn commit_deadline(&self) -> Option<Instant> {
        let can_commit = self.interval.offer.is_some() && !self.interval.is_past_offer;
        let began = self.interval.began.filter(|_| can_commit)?;
        Some(began + self.policy.max_age(self.sink.pending()))
    }

    async fn take(&mut self, element: StreamElement<T>, ctx: &SinkContext) -> Result<(), Stopped> {
        // Time is nothing to commit, so it opens no interval.
        match element {
            StreamElement::Watermark(watermark) => {
                self.report.reached(watermark);
                return Ok(());
            }
            StreamElement::Status(_) => return Ok(()),
            _ => {}
        }
        self.interval.began.get_or_insert_with(Instant::now);
        match element {
            StreamElement::Batch(batch) => {
                self.interval.is_past_offer = true;
                self.report.count_late(&batch);
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
                let is_late = self.commit_deadline().is_some_and(|deadline| deadline <= Instant::now());
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
            Err(fenced) if fenced.is_fenced() => {
                self.raise_fence(fenced, interval.generation);
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
            interval.check().map_err(|unbalanced| Stopped::Error(unbalanced.into()))?;
        }
        Ok(())
    }

    fn settle(&mut self, release: &[SplitId], reply: oneshot::Sender<()>) {
        self.sink.release(release);
        let _ = reply.send(());
    }

    fn discard(&mut self) {
        self.sink.discard();
        // What was dropped is read again, and its time begins anew.
        self.report.reached(Timestamp::MIN);
        self.interval = Interval { generation: self.generation.current(), ..Interval::default() };
    }

    fn enter(&mut self, generation: u64) {
        if self.interval.generation < generation {
            self.discard();
        }
    }

    fn sunk<V>(&self, outcome: Result<V, SinkError>, ctx: &SinkContext) -> Result<V, Stopped> {
        outcome.map_err(|cause| {
            Stopped::Error(JobError::Sink { uid: self.uid.clone(), subtask: ctx.subtask, cause })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use levada_core::batch::RawRecord;
    use levada_core::{Batch, BatchBuilder, Pending, Sink};
    use tokio::time::advance;

    use super::*;

    const AGE: Duration = Duration::from_millis(200);

    /// Counts; each write takes its time.
    #[derive(Debug, Default)]
    struct Counting {
        write_takes: Duration,
        rows: u64,
        /// Rows of each commit, and where it left the split.
        commits: Arc<Mutex<Vec<(u64, u64)>>>,
    }

    fn split() -> SplitId {
        SplitId::new("t", 0)
    }

    impl Sink<()> for Counting {
        async fn open(&mut self, _ctx: SinkContext) -> Result<(), SinkError> {
            Ok(())
        }

        async fn write(&mut self, batch: Batch<()>) -> Result<(), SinkError> {
            self.rows += batch.len() as u64;
            if !self.write_takes.is_zero() {
                advance(self.write_takes).await;
            }
            Ok(())
        }

        async fn close(&mut self) {}
    }

    impl AtomicSink<()> for Counting {
        async fn claim(&mut self, _assignment: &Assignment) -> Result<Positions, SinkError> {
            Ok(Positions::new())
        }

        async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
            let written = std::mem::take(&mut self.rows);
            let next = positions.get(&split()).map_or(0, |position| position.next);
            self.commits.lock().expect("whole").push((written, next));
            Ok(Committed { written, ..Committed::default() })
        }

        fn discard(&mut self) {
            self.rows = 0;
        }

        fn release(&mut self, _splits: &[SplitId]) {}

        fn pending(&self) -> Pending {
            Pending { rows: self.rows, bytes: 0 }
        }
    }

    /// The reader's end of a driver that runs.
    struct Driven {
        to_sink: mpsc::Sender<Message<()>>,
        generation: Generation,
        commits: Arc<Mutex<Vec<(u64, u64)>>>,
        next: u64,
        /// Ends the driver when dropped.
        _cancel: tokio_util::sync::DropGuard,
    }

    fn drive(sink: Counting) -> Driven {
        let (to_sink, from_reader) = mpsc::channel(64);
        let generation = Generation::default();
        let cancel = CancellationToken::new();
        let driven = Driven {
            to_sink,
            generation: generation.clone(),
            commits: Arc::clone(&sink.commits),
            next: 0,
            _cancel: cancel.clone().drop_guard(),
        };
        let driver = AtomicDriver {
            uid: "table".to_owned(),
            sink,
            policy: CommitPolicy { max_age: AGE, ..CommitPolicy::default() },
            from_reader,
            generation,
            progress: Arc::new(watch::Sender::new(Progress::default())),
            stop: CancellationToken::new(),
            cancel,
            interval: Interval::default(),
            fence: None,
            report: StageReport::default(),
        };
        let ctx = SinkContext { job: "job".to_owned(), subtask: 0, parallelism: 1 };
        tokio::spawn(driver.run(ctx));
        driven
    }

    impl Driven {
        /// Sends a batch of one record, and returns the offer that belongs behind it.
        fn batch(&mut self) -> StreamElement<()> {
            let mut builder = BatchBuilder::new();
            let number = builder.split(&split());
            let record = RawRecord { offset: self.next, ..RawRecord::default() };
            builder.push(number, record);
            self.next += 1;
            let (batch, positions) = builder.finish();
            self.send(StreamElement::Batch(batch));
            let mut offer = CommitPoint { positions, ..CommitPoint::default() };
            offer.tally.read = 1;
            StreamElement::CommitPoint(offer)
        }

        fn send(&self, element: StreamElement<()>) {
            let message = Message { generation: self.generation.current(), body: Body::Element(element) };
            self.to_sink.try_send(message).expect("there is room");
        }

        fn commits(&self) -> Vec<(u64, u64)> {
            self.commits.lock().expect("whole").clone()
        }
    }

    /// The offer behind a batch may come late, when the reader waits for room between the two.
    #[tokio::test(start_paused = true)]
    async fn records_past_the_newest_offer_are_not_committed() {
        let mut driven = drive(Counting::default());
        let offer = driven.batch();
        driven.send(offer);
        let late_offer = driven.batch();
        tokio::task::yield_now().await;
        advance(AGE * 9).await;
        advance(AGE).await;
        assert_eq!(driven.commits(), []);
        driven.send(late_offer);
        advance(AGE).await;
        assert_eq!(driven.commits(), [(2, 2)]);
    }

    /// The timer has no turn where a message is always there: each offer looks at the clock as well.
    #[tokio::test(start_paused = true)]
    async fn full_channel_does_not_put_a_commit_off() {
        let mut driven = drive(Counting { write_takes: AGE / 4, ..Counting::default() });
        for _ in 0..12 {
            let offer = driven.batch();
            driven.send(offer);
        }
        // A busy task keeps the paused clock from moving by itself: time passes in the writes alone.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(driven.commits()[..2], [(4, 4), (4, 8)]);
    }

    /// [TPL-22] Between the reader's decision and its claim the timer may fire.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_committed_once_a_discard_is_decided() {
        let mut driven = drive(Counting::default());
        let offer = driven.batch();
        driven.send(offer);
        tokio::task::yield_now().await;
        driven.generation.raise();
        advance(AGE * 9).await;
        advance(AGE).await;
        assert_eq!(driven.commits(), []);
        let offer = driven.batch();
        driven.send(offer);
        tokio::task::yield_now().await;
        advance(AGE).await;
        tokio::task::yield_now().await;
        assert_eq!(driven.commits(), [(1, 2)]);
    }
}
