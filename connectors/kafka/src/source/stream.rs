//! The source as a plain stream of records, without an engine: positions, watermarks and all.
//!
//! ```text
//!   KafkaSource ── poll ──▶ arrived: batches, news, ends ──▶ record by record ──▶ poll_next
//!        ▲                                                     │ SourceTime
//!        └────────────── ask, pause, resume ◀──────────────────┴── watermark, status ──▶ poll_next
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use levada_core::batch::{HeaderIter, Origin};
use levada_core::time::{
    SourceTime, SplitEvent, SplitStatus, TimeAction, TimeSignal, TimestampAssigner, WatermarkStrategy,
};
use levada_core::{
    Assignment, Batch, BatchBuilder, Budget, Clock, ErrorClass, Polled, Position, Positions, Source,
    SourceContext, SourceError, SplitId, StreamStatus, SystemClock, Timestamp,
};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{KafkaSource, KafkaSourceConfig, SeekTo, SourceControl, SourceStatus};

/// The budget of a stream that nobody gave another.
const BUDGET: usize = 256 << 20;

/// One record of Kafka's. Keeps its batch in memory.
#[derive(Debug, Clone)]
pub struct KafkaRecord {
    batch: Arc<Batch<()>>,
    index: usize,
}

impl KafkaRecord {
    /// Returns offset, timestamp and what else is not payload.
    pub fn origin(&self) -> &Origin {
        &self.batch.records()[self.index].origin
    }

    /// Returns topic and partition.
    pub fn split(&self) -> &SplitId {
        self.batch.split(self.origin())
    }

    /// Returns the offset.
    pub fn offset(&self) -> u64 {
        self.origin().offset
    }

    /// Returns the key.
    pub fn key(&self) -> Option<&[u8]> {
        self.batch.key(self.origin())
    }

    /// Returns the value; `None` is a tombstone, which an empty value is not.
    pub fn value(&self) -> Option<&[u8]> {
        self.batch.value(self.origin())
    }

    /// Returns the headers in order.
    pub fn headers(&self) -> HeaderIter<'_> {
        self.batch.headers(self.origin())
    }
}

/// What a [`KafkaStream`] yields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StreamItem {
    /// A record.
    Record(KafkaRecord),
    /// A record without a timestamp, where the strategy refuses those.
    Refused(KafkaRecord),
    /// No record with this timestamp or an earlier one follows, unless it is late.
    Watermark(Timestamp),
    /// Whether records are to be expected.
    Status(StreamStatus),
}

/// Reads topics of Kafka as a [`Stream`] of records and watermarks; see the crate's front page for an example.
///
/// A bounded read ends with the maximum watermark; an unbounded one never. After an error comes nothing. Watermarks are
/// looked for between batches.
pub struct KafkaStream {
    source: KafkaSource,
    control: SourceControl,
    builder: BatchBuilder,
    time: SourceTime<KafkaRecord>,
    assigner: TimestampAssigner<KafkaRecord>,
    clock: Arc<dyn Clock>,
    ticks: Interval,
    arrived: VecDeque<Arrived>,
    ready: VecDeque<StreamItem>,
    positions: Positions,
    is_over: bool,
}

/// What came out of the source and was not looked at yet.
enum Arrived {
    Batch {
        batch: Arc<Batch<()>>,
        next: usize,
        moved: Positions,
        /// Splits that were sought in since: what is left of them is stale.
        stale: Vec<SplitId>,
    },
    Event(SplitId, SplitEvent),
    EndOfSplit(SplitId),
    End,
}

impl KafkaStream {
    /// Connects, with 256 MiB for what is read ahead. On a tokio runtime.
    ///
    /// # Errors
    /// The configuration cannot work, or the cluster cannot be reached or does not know a topic.
    pub async fn open(
        config: KafkaSourceConfig,
        strategy: WatermarkStrategy<KafkaRecord>,
    ) -> Result<Self, SourceError> {
        let ctx = SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(BUDGET) };
        Self::open_in(config, strategy, ctx, Arc::new(SystemClock)).await
    }

    /// The same as one of several subtasks, with a budget and a clock of one's own.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub async fn open_in(
        config: KafkaSourceConfig,
        strategy: WatermarkStrategy<KafkaRecord>,
        ctx: SourceContext,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let failed =
            |cause| SourceError::new(ErrorClass::Fatal, "configure the Kafka source").caused_by(cause);
        let mut source = KafkaSource::new(config).map_err(failed)?;
        source.open(ctx).await?;
        let mut ticks = interval(strategy.interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            control: source.control(),
            source,
            builder: BatchBuilder::new(),
            assigner: strategy.assigner(),
            time: SourceTime::new(strategy),
            clock,
            ticks,
            arrived: VecDeque::new(),
            ready: VecDeque::new(),
            positions: Positions::new(),
            is_over: false,
        })
    }

    /// Returns where each split stands: behind the record yielded last, and past markers once they were passed. Whoever
    /// stores them can go on from them with [`StartAt::Offsets`](super::StartAt::Offsets).
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Returns what a split is doing, and its own watermark.
    pub fn time_of(&self, split: &SplitId) -> Option<(SplitStatus, Timestamp)> {
        self.time.split(split)
    }

    /// Returns the source's counters and states, to be looked at from anywhere.
    pub fn status(&self) -> Arc<SourceStatus> {
        self.source.status()
    }

    /// Commits [`positions`](Self::positions) for the group: for others to see, and for
    /// [`StartAt::Committed`](super::StartAt::Committed).
    ///
    /// # Errors
    /// The broker refuses it or cannot be reached.
    pub async fn commit(&self) -> Result<(), SourceError> {
        self.control.commit(self.positions.clone()).await
    }

    /// Lets a split go on from somewhere else, and returns from where. The next record of the split is the one there.
    ///
    /// # Errors
    /// See [`SourceControl::seek`].
    pub async fn seek(&mut self, split: SplitId, to: SeekTo) -> Result<Position, SourceError> {
        let control = self.control.clone();
        let mut seeking = pin!(control.seek(split, to));
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(sought) = seeking.as_mut().poll(cx) {
                    return Poll::Ready(sought);
                }
                ready!(self.poll_source(cx))?;
            }
        })
        .await
    }

    /// Lets splits rest. Records that were read ahead still come.
    pub fn pause(&self, splits: &[SplitId]) {
        self.control.pause(splits);
    }

    /// Goes on with splits that rest.
    pub fn resume(&self, splits: &[SplitId]) {
        self.control.resume(splits);
    }

    /// Returns a handle to the same, to be used from anywhere.
    pub fn control(&self) -> SourceControl {
        self.control.clone()
    }

    /// Releases everything, and waits until that is done. Dropping the stream does not wait.
    pub async fn close(mut self) {
        self.source.close().await;
    }

    /// Takes what the source has next.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SourceError>> {
        match ready!(self.source.poll_next(cx, &mut self.builder))? {
            Polled::Assigned(assignment) => self.start(&assignment)?,
            Polled::Batch => {
                let (batch, moved) = self.builder.finish();
                let batch = Arc::new(batch);
                self.arrived.push_back(Arrived::Batch { batch, next: 0, moved, stale: Vec::new() });
            }
            Polled::News(news) => {
                // A seek moves a position without a record. It is told as well, and taken from there.
                self.builder.finish();
                news.into_iter().for_each(|(split, event)| self.arrive(split, event));
            }
            Polled::EndOfSplit(split, _) => self.arrived.push_back(Arrived::EndOfSplit(split)),
            Polled::End => self.arrived.push_back(Arrived::End),
            _ => {} // no split at all, or nothing that a source that deals out its own splits does
        }
        Poll::Ready(Ok(()))
    }

    /// Every split starts where it is configured to.
    fn start(&mut self, assignment: &Assignment) -> Result<(), SourceError> {
        let now = self.clock.now();
        let mut starts = Vec::new();
        for stream in &assignment.streams {
            let split = |index| SplitId { stream: Arc::clone(&stream.stream), index };
            starts.extend(stream.splits.iter().map(|start| (split(start.index), start.start.clone())));
        }
        starts.retain(|(split, _)| assignment.splits.contains(split));
        for (split, position) in &starts {
            self.positions.set(split.clone(), position.clone());
            let actions = self.time.add(split.clone(), position.next, now);
            self.act(actions)?;
        }
        self.source.add(starts)
    }

    fn arrive(&mut self, split: SplitId, event: SplitEvent) {
        if matches!(event, SplitEvent::Seek { .. }) {
            for arrived in &mut self.arrived {
                if let Arrived::Batch { stale, moved, .. } = arrived {
                    moved.remove(&split);
                    stale.push(split.clone());
                }
            }
        }
        self.arrived.push_back(Arrived::Event(split, event));
    }

    /// Looks at what has arrived, until there is something to yield or nothing more.
    fn look(&mut self) -> Result<(), SourceError> {
        while self.ready.is_empty() {
            let now = self.clock.now();
            let Some(arrived) = self.arrived.front_mut() else { return Ok(()) };
            match arrived {
                Arrived::Batch { batch, next, stale, .. } if *next < batch.len() => {
                    let record = KafkaRecord { batch: Arc::clone(batch), index: *next };
                    *next += 1;
                    if !stale.contains(record.split()) {
                        self.emit(record, now)?;
                    }
                    continue;
                }
                Arrived::Batch { moved, .. } => self.positions.merge(std::mem::take(moved)),
                Arrived::Event(split, event) => {
                    let (split, event) = (split.clone(), *event);
                    if let SplitEvent::Seek { position } = event {
                        self.positions.set(split.clone(), Position::at(position));
                    }
                    let actions = self.time.event(&split, event, now);
                    self.act(actions)?;
                }
                Arrived::EndOfSplit(split) => self.time.remove(split),
                Arrived::End => {
                    self.time.no_more_splits();
                    let actions = self.time.tick(now);
                    self.act(actions)?;
                    self.is_over = true;
                }
            }
            self.arrived.pop_front();
        }
        Ok(())
    }

    /// Yields a record, then the watermark that it causes.
    fn emit(&mut self, record: KafkaRecord, now: Timestamp) -> Result<(), SourceError> {
        let (split, next) = (record.split().clone(), record.offset() + 1);
        self.positions.set(split.clone(), Position::at(next));
        match self.assigner.assign(record.origin(), &record) {
            Ok(timestamp) => {
                let actions = self.time.record(&split, &record, timestamp, next, now);
                self.ready.push_back(StreamItem::Record(record));
                self.act(actions)
            }
            Err(missing) if missing.is_refused => {
                let actions = self.time.event(&split, SplitEvent::Record { next }, now);
                self.ready.push_back(StreamItem::Refused(record));
                self.act(actions)
            }
            Err(missing) => {
                let text = format!("cannot tell the time of {}", record.batch.coordinates(record.origin()));
                Err(SourceError::new(ErrorClass::Fatal, text).caused_by(missing))
            }
        }
    }

    fn act(&mut self, actions: Vec<TimeAction<SplitId>>) -> Result<(), SourceError> {
        let mut questions = Vec::new();
        for action in actions {
            match action {
                TimeAction::Emit(TimeSignal::Watermark(watermark)) => {
                    self.ready.push_back(StreamItem::Watermark(watermark));
                }
                TimeAction::Emit(TimeSignal::Status(status)) => {
                    self.ready.push_back(StreamItem::Status(status));
                }
                TimeAction::Ask(split, question) => questions.push((split, question)),
                TimeAction::Pause(split) => self.source.pause(&[split])?,
                TimeAction::Resume(split) => self.source.resume(&[split])?,
                _ => {}
            }
        }
        if questions.is_empty() { Ok(()) } else { self.source.ask(questions) }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<StreamItem>, SourceError>> {
        loop {
            self.look()?;
            if let Some(item) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(item)));
            }
            if self.is_over {
                return Poll::Ready(Ok(None));
            }
            if self.ticks.poll_tick(cx).is_ready() {
                let actions = self.time.tick(self.clock.now());
                self.act(actions)?;
            } else {
                ready!(self.poll_source(cx))?;
            }
        }
    }
}

impl Stream for KafkaStream {
    type Item = Result<StreamItem, SourceError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        let item = ready!(stream.poll_item(cx));
        stream.is_over |= item.is_err();
        if item.is_err() {
            stream.arrived.clear();
        }
        Poll::Ready(item.transpose())
    }
}

impl fmt::Debug for KafkaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaStream")
            .field("source", &self.source)
            .field("positions", &self.positions)
            .finish_non_exhaustive()
    }
}
