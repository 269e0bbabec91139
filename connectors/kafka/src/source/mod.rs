//! The Kafka source: one consumer per subtask on its own thread, one queue, positions of our own.
//!
//! ```text
//!   librdkafka ──queue──▶ thread: reader ──batches, ends──▶ exchange ──▶ poll ──▶ BatchBuilder of the engine
//!    (fetches)   events     │  serve                          │            drops what has become stale
//!        ▲                  └── assign, pause ◀── commands ───┴── add, remove, pause, resume
//!        └── budget: half is fetched ahead, half is in batches
//! ```
//!
//! * [`config`](KafkaSourceConfig): what it is told. `start`: what it finds out when it is opened, `topic_ids` whether that still holds.
//! * `reader`: the thread's loop. `serve`: what each event means. `splits`: where each split stands.
//! * `handover`: what passes between thread and `poll`. `leaders`: where splits end, asked beside the loop;
//!   `producers`: whose the transactions are that they wait for.
//! * `contact`: whether a client still has brokers. `renew`: going on with another one, `retire`: ending the old one.
//! * `events`: librdkafka's event API, the only unsafe code.
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
mod contact;
mod control;
mod error;
mod events;
mod handover;
mod leaders;
mod obey;
mod offsets;
mod producers;
mod reader;
mod readings;
mod renew;
mod resolve;
mod retire;
mod running;
mod serve;
mod splits;
mod standing;
mod start;
mod status;
mod stream;
mod thread;
mod topic_ids;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use levada_core::time::Question;
use levada_core::{BatchBuilder, ErrorClass, Polled, Position, Source, SourceContext, SourceError, SplitId};
use tokio::sync::oneshot;

pub use assign::owned_splits;
pub use config::{BatchBounds, Headers, Isolation, KafkaSourceConfig, Otherwise, StartAt, StopAt, WhenLost};
pub use control::{SeekTo, SourceControl};
pub use error::ConfigError;
pub use standing::SplitStanding;
pub use status::{BatchWaits, SourceStatus};
pub use stream::{KafkaRecord, KafkaStream, StreamItem};

use handover::{Command, Exchange, Handover, Taken};
use leaders::{Asker, leaders_config};
use producers::Finder;
use running::Running;
use thread::ReaderThread;

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
    exchange: Polling,
    running: Option<Running>,
}

impl KafkaSource {
    /// Makes a source; nothing is connected before it is opened.
    ///
    /// # Errors
    /// See [`KafkaSourceConfig::check`].
    pub fn new(config: KafkaSourceConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config, status: Arc::default(), exchange: Polling::default(), running: None })
    }

    /// Returns the source's counters and states, to be looked at from anywhere.
    pub fn status(&self) -> Arc<SourceStatus> {
        Arc::clone(&self.status)
    }

    /// Returns a handle that seeks, pauses and resumes, to be used from anywhere.
    pub fn control(&self) -> SourceControl {
        SourceControl::new(Arc::clone(&self.exchange.0), self.config.clone(), Arc::clone(&self.status))
    }

    /// Polls once. Gives up nothing when it is pending: the next call goes on.
    fn poll_next(&mut self, cx: &Context<'_>, out: &mut BatchBuilder) -> Poll<Result<Polled, SourceError>> {
        let running = self.running.as_mut().ok_or_else(not_open)?;
        loop {
            if let Some(told) = running.tell() {
                return Poll::Ready(Ok(told));
            }
            let Some(taken) = ready!(running.exchange.poll_take(cx)) else {
                return Poll::Ready(Err(ended()));
            };
            let polled = match taken {
                Taken::Handover(handover) => {
                    if let Handover::Batch { ready, .. } = &handover {
                        self.status.count_batch(ready.elapsed());
                    }
                    running.accept(handover, out)?
                }
                Taken::Seek(seek) => running.seek(seek, out),
            };
            if let Some(polled) = polled {
                return Poll::Ready(Ok(polled));
            }
        }
    }

    fn running(&mut self) -> Result<&mut Running, SourceError> {
        self.running.as_mut().ok_or_else(not_open)
    }
}

/// The source's own end of the exchange: when it is gone, nobody polls any more.
#[derive(Default)]
struct Polling(Arc<Exchange>);

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for Polling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Polling")
    }
}

impl Source for KafkaSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        let exchange = Arc::clone(&self.exchange.0);
        let (opened_in_thread, opened) = oneshot::channel();
        let asking = leaders_config(&self.config, &ctx);
        let finder = Finder::start(asking, Arc::clone(&exchange), Arc::clone(&self.status));
        let thread = ReaderThread {
            config: self.config.clone(),
            status: Arc::clone(&self.status),
            exchange: Arc::clone(&exchange),
            ctx: ctx.clone(),
            finder: finder.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("kafka-source".to_owned())
            .spawn(move || thread.run(opened_in_thread))
            .map_err(|cause| {
                SourceError::new(ErrorClass::Fatal, "start the consumer's thread").caused_by(cause)
            })?;
        // From here on, dropping `self` (or this future, and `self` later) stops the thread.
        let asker = Asker::new(&self.config, &ctx, Arc::clone(&exchange), Arc::clone(&self.status), finder);
        let running = self.running.insert(Running::new(exchange, thread, asker));
        let opened = opened.await.map_err(|_| ended())??;
        let mut splits = opened.assignment.splits.iter();
        let has_momentary_starts = splits.any(|split| self.config.start.is_momentary(split));
        running.unended = opened.assignment.splits.iter().cloned().collect();
        running.has_splits = !opened.assignment.splits.is_empty();
        running.assignment = running.has_splits.then_some(opened.assignment);
        running.stops = opened.stops;
        running.has_momentary_starts = has_momentary_starts;
        Ok(())
    }

    fn has_momentary_starts(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.has_momentary_starts)
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        std::future::poll_fn(|cx| self.poll_next(cx, out)).await
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

    fn ask(&mut self, questions: Vec<(SplitId, Question)>) -> Result<(), SourceError> {
        let Running { readings, asker, .. } = self.running()?;
        let current = |(split, question)| Some((readings.of(&split)?, split, question));
        asker.ask(questions.into_iter().filter_map(current).collect())
    }

    async fn close(&mut self) {
        self.exchange.0.close();
        let Some(mut running) = self.running.take() else { return };
        running.exchange.command(Command::Stop);
        let threads = [running.thread.take(), running.asker.stop()];
        // Closing the clients may wait for a broker: not on a thread of the runtime. A panic of the first thread was
        // reported by `poll`; a runtime that shuts down does not wait for us.
        let join = move || threads.into_iter().flatten().for_each(|thread| drop(thread.join()));
        drop(tokio::task::spawn_blocking(join).await);
    }
}

fn not_open() -> SourceError {
    SourceError::new(ErrorClass::Fatal, "the Kafka source is not open")
}

/// The thread has ended, and has told why before, or panicked.
fn ended() -> SourceError {
    SourceError::new(ErrorClass::Fatal, "the Kafka consumer's thread has ended")
}
