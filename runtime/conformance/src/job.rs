//! A job around the engine's drivers: starts, barriers, notifications, deaths, and a check behind each.

use std::sync::Arc;

use levada_core::{CheckpointId, Clock, SinkContext, State, Timestamp, state};
use levada_engine::driver::{DriverContext, DriverError, Restored, SinkDriver};

use crate::failure::Finding;
use crate::fuse::{Fuse, Side};
use crate::history::{Event, Fate};
use crate::ledger::Ledger;
use crate::numbers::{Range, TIMES, batch};

/// Records of one batch.
const BATCH: usize = 2;

/// What a template adds: its driver, and what is checked.
pub(crate) trait Kind {
    type Item: Send;
    type Driver: SinkDriver<Self::Item>;
    /// What is there once a job.
    type Coordinator;

    /// Whether opening a driver makes everything visible that the restored checkpoint holds.
    const OPENING_PUBLISHES: bool;

    /// Makes the drivers of a process that starts now.
    fn start(&self, fuse: &Fuse, parallelism: u32) -> (Self::Coordinator, Vec<Self::Driver>);

    fn item(&self, number: u64) -> Self::Item;

    /// Does what is done once a job, before its subtasks open.
    async fn recover(
        &self,
        coordinator: Self::Coordinator,
        ctx: SinkContext,
        first: CheckpointId,
        complete: &[Complete],
    ) -> Result<(), Finding>;

    async fn check(&self, range: Range, ledger: &Ledger) -> Result<(), Finding>;

    /// Checks the target once everything has ended.
    async fn check_end(&self) -> Result<(), Finding>;
}

/// A complete checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Complete {
    pub(crate) checkpoint: CheckpointId,
    /// Its last record.
    pub(crate) position: u64,
    pub(crate) states: Vec<State>,
}

#[derive(Debug)]
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

/// The sink's uid in every job of the suite.
pub(crate) const UID: &str = "sink";

pub(crate) fn context(job: &str, subtask: u32, parallelism: u32) -> SinkContext {
    SinkContext { job: job.to_owned(), subtask, parallelism }
}

pub(crate) struct Job<'a, K: Kind> {
    kind: &'a K,
    name: String,
    range: Range,
    pub(crate) fuse: Fuse,
    parallelism: u32,
    drivers: Vec<K::Driver>,
    attempt: u64,
    sequence: u64,
    position: u64,
    complete: Vec<Complete>,
    ledger: Ledger,
}

impl<'a, K: Kind> Job<'a, K> {
    pub(crate) fn new(kind: &'a K, name: String, range: Range, parallelism: u32) -> Self {
        Self {
            kind,
            name,
            range,
            fuse: Fuse::default(),
            parallelism,
            drivers: Vec::new(),
            attempt: 0,
            sequence: 0,
            position: 0,
            complete: Vec::new(),
            ledger: Ledger::default(),
        }
    }

    /// Plays a history from its first start to its end, and checks behind each event.
    pub(crate) async fn play(&mut self, events: &[Event]) -> Result<(), Finding> {
        self.restart().await?;
        for event in events.iter().chain([&Event::End]) {
            self.survive(*event).await?;
            self.kind.check(self.range, &self.ledger).await?;
        }
        Ok(())
    }

    /// Lets something happen; if the process dies of it, another one starts.
    async fn survive(&mut self, event: Event) -> Result<(), Finding> {
        loop {
            let happened = Box::pin(self.happen(event)).await;
            if !self.fuse.is_dead() {
                return happened;
            }
            self.restart().await?;
            // An end that was cut off comes again; anything else was only part of the way there.
            if !matches!(event, Event::End) {
                return Ok(());
            }
        }
    }

    async fn happen(&mut self, event: Event) -> Result<(), Finding> {
        match event {
            Event::Write(count) => self.write(count).await,
            Event::Barrier(fate) => self.barrier(fate).await,
            Event::Notify(back) => match self.complete.len().checked_sub(back + 1) {
                Some(at) => self.notify(self.complete[at].clone(), usize::MAX).await,
                None => Ok(()),
            },
            Event::Crash(parallelism) => {
                self.fuse.note("† the process dies");
                self.parallelism = parallelism;
                self.restart().await
            }
            Event::Close(parallelism) => {
                self.close().await;
                self.parallelism = parallelism;
                self.restart().await
            }
            Event::Light(calls, side) => {
                self.fuse.light(calls, side);
                Ok(())
            }
            Event::CrashTwice(calls, side) => self.crash_twice(calls, side).await,
            Event::End => self.end().await,
        }
    }

    /// Starts anew from the newest complete checkpoint, in a process that nothing happens to.
    async fn restart(&mut self) -> Result<(), Finding> {
        self.drivers.clear();
        self.fuse.revive();
        self.start().await
    }

    async fn crash_twice(&mut self, calls: u32, side: Side) -> Result<(), Finding> {
        self.fuse.note("† the process dies");
        self.drivers.clear();
        self.fuse.revive();
        self.fuse.light(calls, side);
        let started = self.start().await;
        if self.fuse.is_dead() {
            self.kind.check(self.range, &self.ledger).await?;
            return self.restart().await;
        }
        self.fuse.revive();
        started
    }

    async fn start(&mut self) -> Result<(), Finding> {
        self.attempt += 1;
        self.sequence = 0;
        let newest = self.complete.last().cloned();
        self.position = newest.as_ref().map_or(0, |newest| newest.position);
        let parallelism = self.parallelism;
        let from = newest.as_ref().map_or("nothing".to_owned(), |newest| newest.checkpoint.to_string());
        self.fuse.note(format!("attempt {} starts with {parallelism} subtasks from {from}", self.attempt));
        self.ledger.starts(self.attempt, parallelism, self.position, K::OPENING_PUBLISHES);

        let (coordinator, drivers) = self.kind.start(&self.fuse, parallelism);
        self.drivers = drivers;
        let ctx = context(&self.name, 0, parallelism);
        self.kind.recover(coordinator, ctx, self.first(), &self.complete).await?;
        self.open(newest).await?;
        self.ledger.started(K::OPENING_PUBLISHES);
        Ok(())
    }

    /// The first checkpoint of the running attempt.
    fn first(&self) -> CheckpointId {
        CheckpointId::new(self.attempt, 1)
    }

    async fn open(&mut self, newest: Option<Complete>) -> Result<(), Finding> {
        let checkpoint = newest.as_ref().map(|newest| newest.checkpoint);
        let shares =
            newest.map_or(Ok(Vec::new()), |newest| state::redistribute(newest.states, self.parallelism));
        let shares = shares.map_err(|error| Finding::refused("have its state dealt out", error))?;
        let mut shares = shares.into_iter();
        let first = self.first();
        for (subtask, driver) in self.drivers.iter_mut().enumerate() {
            let ctx = DriverContext {
                sink: context(&self.name, subtask as u32, self.parallelism),
                uid: UID.to_owned(),
                first,
                clock: Arc::new(Stopped),
            };
            let restored = checkpoint.zip(shares.next());
            let restored = restored.map(|(checkpoint, state)| Restored { checkpoint, state });
            let opened = driver.open(ctx, restored).await;
            opened.map_err(Finding::driver(format!("open as subtask {subtask}")))?;
        }
        Ok(())
    }

    async fn write(&mut self, count: u64) -> Result<(), Finding> {
        let first = self.position + 1;
        self.fuse.note(format!("records {first} to {}", self.position + count));
        let mut dealt = vec![Vec::new(); self.drivers.len()];
        for record in first..first + count {
            dealt[record as usize % self.drivers.len()].push(record);
        }
        // The source has handed them out, wherever the process dies.
        self.position += count;
        for (subtask, records) in dealt.iter().enumerate() {
            for batch in records.chunks(BATCH) {
                self.write_batch(subtask, batch).await?;
            }
        }
        Ok(())
    }

    async fn write_batch(&mut self, subtask: usize, records: &[u64]) -> Result<(), Finding> {
        records.iter().for_each(|record| self.ledger.writes(subtask, *record));
        let item = |record: &u64| self.kind.item(self.range.number(*record));
        let items = batch(records.iter().map(item).collect());
        let written = self.drivers[subtask].write(items, &TIMES).await;
        written.map_err(Finding::driver(format!("write records {records:?}")))
    }

    async fn barrier(&mut self, fate: Fate) -> Result<(), Finding> {
        self.sequence += 1;
        let checkpoint = CheckpointId::new(self.attempt, self.sequence);
        self.fuse.note(format!("barrier {checkpoint}, {fate:?}"));
        let mut states = Vec::new();
        for (subtask, driver) in self.drivers.iter_mut().enumerate() {
            let passed = driver.barrier(checkpoint, Timestamp(self.sequence as i64)).await;
            states.push(passed.map_err(Finding::driver(format!("pass barrier {checkpoint}")))?);
            self.ledger.barrier(subtask, checkpoint);
        }
        let told = match fate {
            Fate::Aborted => {
                self.drivers.iter_mut().for_each(|driver| driver.aborted(checkpoint));
                return Ok(());
            }
            Fate::Unstored => return Ok(()),
            Fate::Complete => usize::MAX,
            Fate::HalfTold => 1,
            Fate::Untold => 0,
        };
        let complete = Complete { checkpoint, position: self.position, states };
        self.complete.push(complete.clone());
        self.notify(complete, told).await
    }

    /// Tells so many subtasks: the first ones in their order, or, with every other checkpoint, from the last one on.
    async fn notify(&mut self, complete: Complete, count: usize) -> Result<(), Finding> {
        let Complete { checkpoint, position, .. } = complete;
        let mut subtasks = (0..self.drivers.len()).collect::<Vec<_>>();
        if checkpoint.sequence.is_multiple_of(2) {
            subtasks.reverse();
        }
        for subtask in subtasks.into_iter().take(count) {
            self.fuse.note(format!("subtask {subtask} learns that {checkpoint} is complete"));
            self.ledger.tells(subtask, position);
            let told: Result<(), DriverError> = self.drivers[subtask].complete(checkpoint).await;
            if self.fuse.is_dead() {
                return Ok(());
            }
            told.map_err(Finding::driver(format!("make visible what {checkpoint} covers")))?;
            self.ledger.told(subtask, checkpoint, position);
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(), Finding> {
        // What a restart has set the source back behind comes again before it ends.
        let missing = self.ledger.written().saturating_sub(self.position);
        if missing > 0 {
            self.write(missing).await?;
        }
        self.fuse.note("the stream ends");
        for driver in &mut self.drivers {
            driver.finish().await.map_err(Finding::driver("finish"))?;
        }
        self.barrier(Fate::Complete).await?;
        self.close().await;
        if self.fuse.is_dead() {
            return Ok(());
        }
        self.kind.check_end().await
    }

    async fn close(&mut self) {
        self.fuse.note("the process is closed");
        for driver in &mut self.drivers {
            driver.close().await;
        }
        self.drivers.clear();
    }
}
