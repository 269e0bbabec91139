//! The Kafka source: one consumer per subtask on its own thread, one queue, positions of our own.
//!
//! ```text
//!   librdkafka ──queue──▶ thread: reader ──batches, ends──▶ exchange ──▶ poll ──▶ BatchBuilder of the engine
//!    (fetches)   events     │  serve                          │            drops what has become stale
//!        ▲                  └── assign, pause ◀── commands ───┴── add, remove, pause, resume
//!        └── budget: half is fetched ahead, half is in batches
//! ```
//!
//! * [`config`](KafkaSourceConfig): what it is told. `start`: what it finds out when it is opened.
//! * `reader`: the thread's loop. `serve`: what each event means. `splits`: where each split stands.
//! * `handover`: what passes between thread and `poll`. `events`: librdkafka's event API, the only unsafe code.
//!
//! # Positions
//! A split's position is the offset of its last appended record plus one, set by the same call that appends the record.
//! At the end of a partition it moves on to the end: past control records, aborted data and holes. It never depends on
//! the client's own notion of a position.
//!
//! # Readings
//! Each `add` of a split begins a new *reading*. What was read for an earlier one may be anywhere between the client and
//! `poll` at that moment; it carries its reading's number, and `poll` drops it.

mod assign;
mod client;
mod config;
mod error;
mod events;
mod handover;
mod reader;
mod serve;
mod splits;
mod start;
mod status;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, BatchBuilder, ErrorClass, Polled, Position, Positions, Source, SourceContext, SourceError,
    SplitId,
};
use tokio::sync::oneshot;

pub use assign::owned_splits;
pub use config::{BatchBounds, Headers, Isolation, KafkaSourceConfig, StartAt, StopAt};
pub use error::ConfigError;
pub use status::SourceStatus;

use error::ReadError;
use events::Client;
use handover::{Command, Exchange, Handover, ReadingId};
use reader::Reader;
use start::{Opened, Opener};

/// Reads topics of Kafka.
///
/// The splits are dealt out by [`owned_splits`]. After [`open`](Source::open), the first poll returns
/// [`Polled::Assigned`]; splits are read once they have been added. A subtask without a split returns [`Polled::End`] at
/// once if the read is bounded, else [`Polled::Idle`] once, and then waits.
///
/// A split that rests keeps resting when it is added again, until it is resumed or removed. Batches that were on their
/// way when it was paused still come.
///
/// Hand an empty builder to each poll: the batch that the thread built is then moved, not copied. Dropping the future of
/// a poll loses nothing.
#[derive(Debug)]
pub struct KafkaSource {
    config: KafkaSourceConfig,
    status: Arc<SourceStatus>,
    running: Option<Running>,
}

/// A source that is open.
struct Running {
    exchange: Arc<Exchange>,
    thread: Option<JoinHandle<()>>,
    /// Told by the first poll.
    assignment: Option<Assignment>,
    stops: Option<Positions>,
    /// Splits whose bounded read has not ended.
    unended: BTreeSet<SplitId>,
    has_splits: bool,
    was_told_idle: bool,
    readings: Readings,
}

/// Which readings are current.
#[derive(Debug, Default)]
struct Readings {
    last: u64,
    of: HashMap<SplitId, ReadingId>,
    live: HashSet<ReadingId>,
}

impl KafkaSource {
    /// Makes a source; nothing is connected before it is opened.
    ///
    /// # Errors
    /// See [`KafkaSourceConfig::check`].
    pub fn new(config: KafkaSourceConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, status: Arc::default(), running: None })
    }

    /// Returns the source's counters and states, to be looked at from anywhere.
    pub fn status(&self) -> Arc<SourceStatus> {
        Arc::clone(&self.status)
    }

    fn running(&mut self) -> Result<&mut Running, SourceError> {
        self.running
            .as_mut()
            .ok_or_else(|| SourceError::new(ErrorClass::Fatal, "the Kafka source is not open"))
    }
}

impl Source for KafkaSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        let exchange = Arc::<Exchange>::default();
        let (opened_in_thread, opened) = oneshot::channel();
        let thread = ReaderThread {
            config: self.config.clone(),
            status: Arc::clone(&self.status),
            exchange: Arc::clone(&exchange),
            ctx,
        };
        let thread = std::thread::Builder::new()
            .name("kafka-source".to_owned())
            .spawn(move || thread.run(opened_in_thread))
            .map_err(|cause| {
                SourceError::new(ErrorClass::Fatal, "start the consumer's thread").caused_by(cause)
            })?;
        // From here on, dropping `self` (or this future, and `self` later) stops the thread.
        let running = self.running.insert(Running::new(exchange, thread));
        let opened = opened.await.map_err(|_| ended())??;
        running.unended = opened.assignment.splits.iter().cloned().collect();
        running.has_splits = !opened.assignment.splits.is_empty();
        running.assignment = running.has_splits.then_some(opened.assignment);
        running.stops = opened.stops;
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        let running = self.running()?;
        loop {
            if let Some(told) = running.tell() {
                return Ok(told);
            }
            let handover = running.exchange.take().await.ok_or_else(ended)?;
            if let Some(polled) = running.accept(handover, out)? {
                return Ok(polled);
            }
        }
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        let running = self.running()?;
        let begun = splits.into_iter().map(|(split, position)| {
            running.unended.insert(split.clone());
            (running.readings.begin(&split), split, position)
        });
        let begun = begun.collect();
        running.has_splits = true;
        running.exchange.command(Command::Add(begun));
        Ok(())
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        let running = self.running()?;
        for split in splits {
            running.unended.remove(split);
            running.readings.end(split);
        }
        running.exchange.command(Command::Remove(splits.to_vec()));
        Ok(())
    }

    fn pause(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.running()?.exchange.command(Command::Pause(splits.to_vec()));
        Ok(())
    }

    fn resume(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        self.running()?.exchange.command(Command::Resume(splits.to_vec()));
        Ok(())
    }

    async fn close(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        running.exchange.command(Command::Stop);
        if let Some(thread) = running.thread.take() {
            // Closing the client may wait for a broker: not on a thread of the runtime. A panic of the thread was
            // reported by `poll`; a runtime that shuts down does not wait for us.
            drop(tokio::task::spawn_blocking(move || drop(thread.join())).await);
        }
    }
}

impl Running {
    fn new(exchange: Arc<Exchange>, thread: JoinHandle<()>) -> Self {
        Self {
            exchange,
            thread: Some(thread),
            assignment: None,
            stops: None,
            unended: BTreeSet::new(),
            has_splits: false,
            was_told_idle: false,
            readings: Readings::default(),
        }
    }

    /// Returns what is known without waiting.
    fn tell(&mut self) -> Option<Polled> {
        if let Some(assignment) = self.assignment.take() {
            return Some(Polled::Assigned(assignment));
        }
        if self.stops.is_some() && self.unended.is_empty() {
            return Some(Polled::End);
        }
        if !self.has_splits && !self.was_told_idle {
            self.was_told_idle = true;
            return Some(Polled::Idle);
        }
        None
    }

    /// Turns a handover into the answer of a poll, or into nothing when it is stale.
    fn accept(&mut self, handover: Handover, out: &mut BatchBuilder) -> Result<Option<Polled>, SourceError> {
        match handover {
            Handover::Batch { builder, readings, .. } => {
                let is_current = readings.iter().all(|reading| self.readings.is_live(*reading));
                let has_news = match (is_current, out.is_empty()) {
                    (true, true) => {
                        *out = builder;
                        true
                    }
                    _ => self.readings.copy_live(builder, &readings, out),
                };
                Ok(has_news.then_some(Polled::Batch))
            }
            Handover::EndOfSplit { reading, split, end } if self.readings.is_live(reading) => {
                self.unended.remove(&split);
                Ok(Some(Polled::EndOfSplit(split, end)))
            }
            Handover::EndOfSplit { .. } => Ok(None),
            Handover::Failed(error) => Err(error),
        }
    }
}

impl Readings {
    fn begin(&mut self, split: &SplitId) -> ReadingId {
        self.end(split);
        self.last += 1;
        let id = ReadingId(self.last);
        self.of.insert(split.clone(), id);
        self.live.insert(id);
        id
    }

    fn end(&mut self, split: &SplitId) {
        if let Some(id) = self.of.remove(split) {
            self.live.remove(&id);
        }
    }

    fn is_live(&self, reading: ReadingId) -> bool {
        self.live.contains(&reading)
    }

    /// Copies what is current of a batch to `out`, and tells whether there was anything. The batch's permit goes with
    /// the batch: this happens once per change of a split, for less than a batch each.
    fn copy_live(&self, mut builder: BatchBuilder, readings: &[ReadingId], out: &mut BatchBuilder) -> bool {
        let (batch, positions) = builder.finish();
        for record in batch.records() {
            let origin = &record.origin;
            if !self.is_live(readings[origin.split as usize]) {
                continue;
            }
            let raw = RawRecord {
                offset: origin.offset,
                timestamp: origin.timestamp,
                timestamp_kind: origin.timestamp_kind,
                leader_epoch: origin.leader_epoch,
                key: batch.key(origin),
                value: batch.value(origin),
            };
            let number = out.split(batch.split(origin));
            out.push_with_headers(number, raw, batch.headers(origin));
        }
        let is_live = |split: &SplitId| self.of.get(split).is_some_and(|id| readings.contains(id));
        let mut has_news = false;
        for (split, position) in positions.into_iter().filter(|(split, _)| is_live(split)) {
            let number = out.split(&split);
            out.advance(number, position);
            has_news = true;
        }
        has_news
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.exchange.command(Command::Stop);
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("unended", &self.unended)
            .field("readings", &self.readings)
            .finish_non_exhaustive()
    }
}

/// The thread has ended, and has told why before, or panicked.
fn ended() -> SourceError {
    SourceError::new(ErrorClass::Fatal, "the Kafka consumer's thread has ended")
}

/// What the consumer's thread is started with.
struct ReaderThread {
    config: KafkaSourceConfig,
    status: Arc<SourceStatus>,
    exchange: Arc<Exchange>,
    ctx: SourceContext,
}

impl ReaderThread {
    fn run(self, opened: oneshot::Sender<Result<Opened, SourceError>>) {
        // Also when the thread panics, `poll` must not wait for ever.
        let _end = EndGuard(Arc::clone(&self.exchange));
        match self.open() {
            Ok((client, found)) => {
                let stops = found.stops.clone();
                if opened.send(Ok(found)).is_ok() {
                    self.reader(client, stops).run();
                }
            }
            Err(error) => drop(opened.send(Err(error.into()))),
        }
    }

    fn open(&self) -> Result<(Client, Opened), ReadError> {
        let SourceContext { subtask, parallelism, budget } = &self.ctx;
        let config = client::client_config(&self.config, budget, *subtask, *parallelism);
        let client =
            Client::new(&config, Arc::clone(self.exchange.wake())).map_err(ReadError::of_creation)?;
        let opener = Opener {
            client: &client,
            config: &self.config,
            exchange: &self.exchange,
            status: &self.status,
            started: Instant::now(),
            last_error: None,
        };
        let found = opener.open(*subtask, *parallelism)?;
        Ok((client, found))
    }

    fn reader(self, client: Client, stops: Option<Positions>) -> Reader {
        let Self { config, status, exchange, ctx } = self;
        Reader::new(client, &config, exchange, status, ctx.budget, stops)
    }
}

struct EndGuard(Arc<Exchange>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
