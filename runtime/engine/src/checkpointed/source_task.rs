//! The task of one subtask of a source, with the steps chained to it.

use std::time::Duration;

use levada_core::{
    Barrier, BarrierKind, ErrorChain, SourceContext, SourceError, State, StreamElement, StreamStatus,
    Timestamp,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backlog::Ahead;
use super::control::{Command, Commands, Event, Events, Participant, Snapshot};
use super::hold::Hold;
use super::input::{Input, Read};
use super::outlet::Outlet;
use super::relay::Through;
use super::restoring::Turn;
use crate::closing::close_in_time;
use crate::error::JobError;
use crate::map::Identity;
use crate::message::Stopped;
use crate::time::{Fed, Ticks, TimeContext, TimeEvent, Timed, Wanted};

/// A source that is to be opened.
pub(crate) struct SourceFeed<I> {
    pub(crate) participant: Participant,
    pub(crate) input: Box<dyn Input<I>>,
    pub(crate) ctx: SourceContext,
    /// What it had stored.
    pub(crate) restored: State,
    pub(crate) commands: Commands,
    pub(crate) time: TimeContext,
    /// When it may read.
    pub(crate) turn: Turn,
    /// Whether the steps have room.
    pub(crate) ahead: Ahead,
}

pub(crate) struct SourceTask<I> {
    pub(crate) feed: SourceFeed<I>,
    /// The steps, and where their outcome goes.
    pub(crate) outlet: Outlet<I>,
    pub(crate) events: Events,
    pub(crate) cancel: CancellationToken,
}

/// When the task looks at the time.
struct Clockwork {
    ticks: Ticks,
    /// How long it has waited for others since the last tick.
    held_up: Duration,
    /// Since when it waits for others and reads nothing.
    waits_since: Option<Timestamp>,
}

impl Clockwork {
    fn note_waits(&mut self, waits: bool, now: Timestamp) {
        match (waits, self.waits_since) {
            (true, None) => self.waits_since = Some(now),
            (false, Some(since)) => {
                self.held_up += now.since(since);
                self.waits_since = None;
            }
            _ => {}
        }
    }

    fn take_held_up(&mut self, now: Timestamp) -> Duration {
        if let Some(since) = &mut self.waits_since {
            self.held_up += now.since(*since);
            *since = now;
        }
        std::mem::take(&mut self.held_up)
    }
}

/// What the task waited for.
enum Wakeup {
    Told(Option<Command>),
    Tick,
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
        let mut clockwork = self.begin_time();
        let mut hold = Hold::default();
        loop {
            // A checkpoint that has the starts of others and not these would make these splits look new: it waits for them.
            let listens = !(is_reading && self.feed.input.owes_starts());
            let (has_turn, has_room) = (self.feed.turn.has_come(), self.feed.ahead.is_clear());
            let reads = is_reading && !hold.is_held() && has_turn && has_room;
            clockwork.note_waits(is_reading && !reads, self.feed.time.clock.now());
            let keeps_time = is_reading && self.feed.input.knows_its_splits();
            // A command first: a source that always has records must not starve the checkpoints. A tick comes seldom.
            let wakeup = tokio::select! {
                biased;
                command = self.feed.commands.recv(), if listens => Wakeup::Told(command),
                () = clockwork.ticks.next(), if keeps_time => Wakeup::Tick,
                read = self.feed.input.next(&mut out), if reads => Wakeup::Read(read),
                () = self.feed.turn.comes(), if is_reading && !has_turn => continue,
                () = self.feed.ahead.clears(), if is_reading && !has_room => continue,
            };
            match wakeup {
                Wakeup::Told(Some(Command::Start)) => {
                    is_reading = true;
                    self.feed.input.begin(&mut out);
                    self.hand_on(&mut out, &mut clockwork).await?;
                }
                Wakeup::Told(Some(Command::Inject { barrier, drain })) => {
                    let state = self.feed.input.snapshot(barrier.checkpoint, &mut out);
                    hold.mark(barrier.checkpoint);
                    self.hand_on(&mut out, &mut clockwork).await?;
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
                    hold.complete(checkpoint);
                    self.tell(Event::Handled(self.feed.participant.clone(), checkpoint))?;
                }
                Wakeup::Told(Some(Command::Aborted(_) | Command::Expect(_))) => {}
                Wakeup::Told(Some(Command::Close) | None) => return Ok(()),
                Wakeup::Tick => {
                    let held_up = clockwork.take_held_up(self.feed.time.clock.now());
                    self.tell_time(TimeEvent::Tick { held_up }).await?;
                }
                Wakeup::Read(read) => {
                    let read = self.sourced(read)?;
                    self.hand_on(&mut out, &mut clockwork).await?;
                    if self.feed.input.take_new_starts() {
                        self.tell(Event::StartsFound(self.feed.participant.clone(), hold.begin()))?;
                    }
                    if read == Read::End {
                        (is_reading, has_ended) = (false, true);
                        if clockwork.ticks.are_wanted() {
                            self.tell_time(TimeEvent::Ended).await?;
                        }
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

    /// Begins to keep time: where a strategy stands, or in front of the steps if the source has a word of its own.
    fn begin_time(&mut self) -> Clockwork {
        let mut terms = self.outlet.begin_time(&self.feed.time);
        if terms.is_none() && self.feed.input.has_its_own_time() {
            // A channel without a sender is taken for the moment: nobody sends into it.
            let (nowhere, _) = mpsc::channel(1);
            let outlet = std::mem::replace(&mut self.outlet, Outlet::Forward(nowhere));
            let timed = Timed::own(Box::new(Identity));
            self.outlet = Outlet::Relay(Box::new(Through::new(Box::new(timed), outlet)));
            terms = self.outlet.begin_time(&self.feed.time);
        }
        Clockwork { ticks: Ticks::new(terms), held_up: Duration::ZERO, waits_since: None }
    }

    /// Sends what was read, and tells in its place what happened to splits.
    async fn hand_on(&mut self, out: &mut Vec<Fed<I>>, clockwork: &mut Clockwork) -> Result<(), Stopped> {
        let keeps_time = clockwork.ticks.are_wanted();
        for fed in out.drain(..) {
            match fed {
                Fed::Element(element) if keeps_time => {
                    let began = self.feed.time.clock.now();
                    self.outlet.send(element).await?;
                    clockwork.held_up += self.feed.time.clock.now().since(began);
                }
                Fed::Element(element) => self.outlet.send(element).await?,
                Fed::Time(event) if keeps_time => self.tell_time(event).await?,
                Fed::Time(_) => {}
            }
        }
        Ok(())
    }

    /// Tells the step that keeps time, and has the source do what it wants.
    async fn tell_time(&mut self, event: TimeEvent) -> Result<(), Stopped> {
        let mut wanted = Wanted::default();
        self.outlet.time(event, &mut wanted).await?;
        match wanted.is_empty() {
            true => Ok(()),
            false => {
                let steered = self.feed.input.steer(wanted);
                self.sourced(steered)
            }
        }
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

#[cfg(test)]
mod tests {
    use levada_core::template::{Emit, Next, SourceFunction};
    use std::sync::Arc;

    use levada_core::batch::RawRecord;
    use levada_core::time::WatermarkStrategy;
    use levada_core::{
        Assignment, BatchBuilder, Budget, CheckpointId, Polled, Position, Source, SplitId, SplitStart,
        StreamId, StreamStart, SystemClock, TimestampKind,
    };

    use super::*;
    use crate::checkpointed::backlog::Backlogs;
    use crate::checkpointed::function_input::Function;
    use crate::checkpointed::input::Splits;
    use crate::checkpointed::restoring::Restoring;
    use crate::time::{DriftGroups, TimeStatus};

    /// Says that it is idle, and waits.
    #[derive(Debug)]
    struct Idle;

    impl SourceFunction for Idle {
        type Item = u8;

        async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> {
            Ok(())
        }

        async fn next(&mut self, out: &mut Emit<'_, u8>) -> Result<Next, SourceError> {
            out.idle();
            Ok(Next::More)
        }
    }

    fn inject(sequence: u64, kind: BarrierKind, drain: bool) -> Command {
        let (checkpoint, triggered_at) = (CheckpointId::new(1, sequence), Timestamp(0));
        Command::Inject { barrier: Barrier { checkpoint, kind, triggered_at }, drain }
    }

    /// Assigns itself a split, reads one record of it a poll, as often as it is told, and waits.
    #[derive(Debug)]
    struct Log {
        told: mpsc::UnboundedReceiver<i64>,
        next: Option<u64>,
    }

    impl Source for Log {
        async fn open(&mut self, _: SourceContext) -> Result<(), SourceError> {
            Ok(())
        }

        async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
            let Some(offset) = self.next else {
                let start = SplitStart { index: 0, start: Position::at(0), earliest: Position::at(0) };
                let (stream, id) = ("t".into(), StreamId("t".into()));
                let streams = vec![StreamStart { stream, id, splits: vec![start] }];
                let splits = vec![SplitId::new("t", 0)];
                return Ok(Polled::Assigned(Assignment { splits, streams, ..Assignment::default() }));
            };
            let Some(timestamp) = self.told.recv().await else { return std::future::pending().await };
            let (timestamp, timestamp_kind) = (Timestamp(timestamp), TimestampKind::Create);
            let split = out.split(&SplitId::new("t", 0));
            out.push(split, RawRecord { offset, timestamp, timestamp_kind, ..RawRecord::default() });
            self.next = Some(offset + 1);
            Ok(Polled::Batch)
        }

        fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
            self.next = splits.first().map(|(_, position)| position.next);
            Ok(())
        }

        fn remove(&mut self, _: &[SplitId]) -> Result<(), SourceError> {
            Ok(())
        }

        fn pause(&mut self, _: &[SplitId]) -> Result<(), SourceError> {
            Ok(())
        }

        fn resume(&mut self, _: &[SplitId]) -> Result<(), SourceError> {
            Ok(())
        }

        async fn close(&mut self) {}
    }

    /// [TIM-02] [TIM-08] what a barrier parts, it parts in time, too: a watermark of records in front of it that has not come
    /// yet comes behind it.
    #[tokio::test(start_paused = true)]
    async fn records_watermarks_and_barriers_stand_in_the_order_in_which_they_arose() {
        let (commands, receiver) = mpsc::unbounded_channel();
        let (to, mut elements) = mpsc::channel::<StreamElement<()>>(16);
        let (events, _told) = mpsc::unbounded_channel();
        let (log, told) = mpsc::unbounded_channel();
        let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(10));
        let timed = Timed::by(strategy, Box::new(Identity));
        let feed = SourceFeed {
            participant: Participant { uid: "source".into(), subtask: 0 },
            input: Box::new(Splits::new(Log { told, next: None })),
            ctx: SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(1 << 20) },
            restored: State::new(),
            commands: receiver,
            time: time_context(),
            turn: Restoring::new(Vec::new(), 1).turn_of_source(),
            ahead: Backlogs::new(1).ahead_of(0),
        };
        let outlet = Outlet::Relay(Box::new(Through::new(Box::new(timed), Outlet::Forward(to))));
        let task = SourceTask { feed, outlet, events, cancel: CancellationToken::new() };
        tokio::spawn(task.run());
        commands.send(Command::Start).unwrap();
        let mut seen = Vec::new();
        for timestamp in [100, 200] {
            log.send(timestamp).unwrap();
            seen.push(named(elements.recv().await.unwrap()));
            // At once, so it comes before the next tick.
            commands.send(inject(u64::try_from(timestamp).unwrap(), BarrierKind::Checkpoint, false)).unwrap();
            seen.push(named(elements.recv().await.unwrap()));
            seen.push(named(elements.recv().await.unwrap()));
        }
        let expected =
            ["record 100", "barrier 1-100", "watermark 89", "record 200", "barrier 1-200", "watermark 189"];
        assert_eq!(seen, expected);
    }

    fn named<T: std::fmt::Debug>(element: StreamElement<T>) -> String {
        match element {
            StreamElement::Batch(batch) => format!("record {}", batch.records()[0].origin.timestamp.0),
            StreamElement::Status(status) => format!("{status:?}"),
            StreamElement::Watermark(watermark) => format!("watermark {}", watermark.0),
            StreamElement::Barrier(barrier) => format!("barrier {}", barrier.checkpoint),
            StreamElement::End => "end".to_owned(),
            other => format!("{other:?}"),
        }
    }

    fn time_context() -> TimeContext {
        let clock = Arc::new(SystemClock);
        let status = TimeStatus::new(Arc::<SystemClock>::clone(&clock));
        TimeContext { uid: "source".to_owned(), subtask: 0, clock, groups: DriftGroups::new(), status }
    }

    /// [TIM-06] A split from which nothing is read has not fallen silent: the wait counts as one for others, also over ticks.
    #[test]
    fn time_in_which_the_source_may_not_read_is_held_up() {
        let mut clockwork = Clockwork { ticks: Ticks::new(None), held_up: Duration::ZERO, waits_since: None };
        let millis = Duration::from_millis;
        clockwork.note_waits(true, Timestamp(100));
        clockwork.note_waits(true, Timestamp(120));
        assert_eq!(clockwork.take_held_up(Timestamp(150)), millis(50));
        clockwork.note_waits(false, Timestamp(170));
        clockwork.note_waits(false, Timestamp(180));
        assert_eq!(clockwork.take_held_up(Timestamp(200)), millis(20));
        assert_eq!(clockwork.take_held_up(Timestamp(300)), millis(0));
    }

    /// [CHK-12] Event time ends before the savepoint, also of a source that is idle; and only once.
    #[tokio::test]
    async fn drain_sends_the_maximum_watermark_and_the_end_before_the_barrier() {
        let (commands, receiver) = mpsc::unbounded_channel();
        let (to, mut elements) = mpsc::channel::<StreamElement<u8>>(16);
        let (events, _told) = mpsc::unbounded_channel();
        let participant = Participant { uid: "source".into(), subtask: 0 };
        let feed = SourceFeed {
            participant,
            input: Box::new(Function::new("source", 0, Idle)),
            ctx: SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(1 << 20) },
            restored: State::new(),
            commands: receiver,
            time: time_context(),
            turn: Restoring::new(Vec::new(), 1).turn_of_source(),
            ahead: Backlogs::new(1).ahead_of(0),
        };
        let stop = |sequence| inject(sequence, BarrierKind::Stop, true);
        for command in [stop(1), stop(2), Command::Close] {
            commands.send(command).unwrap();
        }
        let task = SourceTask { feed, outlet: Outlet::Forward(to), events, cancel: CancellationToken::new() };
        task.run().await;
        let mut sent = Vec::new();
        while let Some(element) = elements.recv().await {
            sent.push(named(element));
        }
        let maximum = format!("watermark {}", i64::MAX);
        assert_eq!(sent, ["Active", &maximum, "end", "barrier 1-1", "barrier 1-2"]);
    }
}
