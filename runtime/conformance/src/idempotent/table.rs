//! A job that writes a log of changes, and what the table must look like.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_core::{CheckpointId, Clock, SystemClock, Timestamp};
use levada_engine::driver::{DriverContext, IdempotentDriver, SinkDriver};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::IdempotentTarget;
use super::wrapped::Wrapped;
use crate::failure::Finding;
use crate::fuse::Fuse;
use crate::job::{UID, context};
use crate::numbers::{Range, TIMES, batch};

/// Keys of a history: few, so that they repeat.
pub(super) const KEYS: u64 = 5;

/// Records of one batch.
const BATCH: usize = 3;

/// A change: a key, and its version or its deletion.
pub(super) type Change = (u64, Option<u64>);

/// Draws a log.
pub(super) fn log(rng: &mut StdRng, length: usize, deletes: bool) -> Vec<Change> {
    let change = |version: usize| {
        let is_deletion = deletes && rng.random_range(0..4) == 0;
        (rng.random_range(1..=KEYS), (!is_deletion).then_some(version as u64 + 1))
    };
    (0..length).map(change).collect()
}

type Driver<T> = IdempotentDriver<Wrapped<<T as IdempotentTarget>::Sink>>;

pub(super) struct Table<'a, T: IdempotentTarget> {
    target: &'a T,
    job: String,
    range: Range,
    fuse: Fuse,
    log: &'a [Change],
    drivers: Vec<Driver<T>>,
    attempt: u64,
    sequence: u64,
    /// How much of the log was read.
    position: usize,
    /// How much of it was ever read: behind a crash, some of it may be in the table.
    read: usize,
    /// What the newest checkpoint covers.
    pub(super) covered: usize,
}

impl<'a, T: IdempotentTarget> Table<'a, T> {
    pub(super) fn new(target: &'a T, fuse: Fuse, job: String, range: Range, log: &'a [Change]) -> Self {
        Self {
            target,
            job,
            range,
            fuse,
            log,
            drivers: Vec::new(),
            attempt: 0,
            sequence: 0,
            position: 0,
            read: 0,
            covered: 0,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.position == self.log.len()
    }

    /// Starts a process that reads on from a place of the log; whatever ran before is dropped.
    pub(super) async fn start(&mut self, parallelism: u32, from: usize) -> Result<(), Finding> {
        self.drivers.clear();
        self.fuse.revive();
        self.attempt += 1;
        self.sequence = 0;
        self.position = from;
        self.fuse.note(format!("attempt {} starts with {parallelism} subtasks at {from}", self.attempt));
        for (subtask, sink) in self.target.sinks(parallelism).into_iter().enumerate() {
            let mut driver: Driver<T> = IdempotentDriver::new(Wrapped { sink, fuse: self.fuse.clone() });
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let ctx = DriverContext {
                sink: context(&self.job, subtask as u32, parallelism),
                uid: UID.to_owned(),
                first: CheckpointId::new(self.attempt, 1),
                clock,
            };
            SinkDriver::<T::Item>::open(&mut driver, ctx, None).await.map_err(Finding::driver("open"))?;
            self.drivers.push(driver);
        }
        Ok(())
    }

    /// Reads so many changes; each key goes to the same subtask.
    pub(super) async fn write(&mut self, count: usize) -> Result<(), Finding> {
        let end = self.log.len().min(self.position + count);
        let changes = &self.log[self.position..end];
        self.fuse.note(format!("changes {changes:?}"));
        (self.position, self.read) = (end, self.read.max(end));
        let subtasks = self.drivers.len() as u64;
        for (subtask, driver) in self.drivers.iter_mut().enumerate() {
            let own = changes.iter().filter(|(key, _)| key % subtasks == subtask as u64).collect::<Vec<_>>();
            for changes in own.chunks(BATCH) {
                let item = |(key, version): &&Change| {
                    let key = self.range.number(*key);
                    match version {
                        Some(version) => Some(self.target.item(key, *version)),
                        None => self.target.deletion(key),
                    }
                };
                let items = batch(changes.iter().filter_map(item).collect());
                driver.write(items, &TIMES).await.map_err(Finding::driver("write"))?;
            }
        }
        Ok(())
    }

    /// Passes a barrier: what was read is durable behind it.
    pub(super) async fn barrier(&mut self) -> Result<(), Finding> {
        self.sequence += 1;
        let checkpoint = CheckpointId::new(self.attempt, self.sequence);
        self.fuse.note(format!("barrier {checkpoint}"));
        for driver in &mut self.drivers {
            let state = SinkDriver::<T::Item>::barrier(driver, checkpoint, Timestamp(0)).await;
            state.map_err(Finding::driver("pass a barrier"))?;
        }
        for driver in &mut self.drivers {
            let told = SinkDriver::<T::Item>::complete(driver, checkpoint).await;
            told.map_err(Finding::driver("hear of a checkpoint"))?;
        }
        self.covered = self.position;
        self.check().await
    }

    /// Ends the stream.
    pub(super) async fn end(&mut self) -> Result<(), Finding> {
        self.write(self.log.len()).await?;
        self.fuse.note("the stream ends");
        for driver in &mut self.drivers {
            SinkDriver::<T::Item>::finish(driver).await.map_err(Finding::driver("finish"))?;
        }
        self.barrier().await?;
        for driver in &mut self.drivers {
            SinkDriver::<T::Item>::close(driver).await;
        }
        if self.fuse.is_dead() { Ok(()) } else { self.check().await }
    }

    /// Checks the table right behind a flush. A key that comes again later in a replay may still have its later version.
    pub(super) async fn check(&self) -> Result<(), Finding> {
        let rows = self.target.rows().await.map_err(Finding::Target)?;
        let keys = self.range.records(rows.iter().map(|(key, _)| *key).collect());
        self.fuse.note(format!("{} rows", keys.len()));
        crate::ledger::Ledger::check_once(&keys)?;
        let found = rows
            .into_iter()
            .filter_map(|(key, version)| self.range.records(vec![key]).first().map(|key| (*key, version)));
        let found = found.collect::<BTreeMap<_, _>>();
        for key in 1..=KEYS {
            let allowed = self.allowed(key);
            let version = found.get(&key).copied();
            if !allowed.contains(&version) {
                let expected = allowed.into_iter().flatten().collect();
                return Err(Finding::WrongVersion { key, expected, found: version });
            }
        }
        Ok(())
    }

    fn allowed(&self, key: u64) -> BTreeSet<Option<u64>> {
        let of_key = |changes: &[Change]| {
            let own = changes.iter().filter(|(changed, _)| *changed == key);
            own.map(|(_, version)| *version).collect::<Vec<_>>()
        };
        let last = of_key(&self.log[..self.position]).last().copied().flatten();
        let later = of_key(&self.log[self.position..self.read.max(self.position)]);
        later.into_iter().chain([last]).collect()
    }
}
