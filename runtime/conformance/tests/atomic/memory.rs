//! A table in memory: rows and positions behind one lock, ownership by epoch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use levada_conformance::AtomicTarget;
use levada_core::error::Owner;
use levada_core::{
    Assignment, AtomicSink, Batch, BoxError, Committed, ErrorClass, Pending, Position, Positions, Sink,
    SinkContext, SinkError, SplitId,
};

/// What is wrong with a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flaw {
    #[default]
    None,
    ClaimsWithoutAFence,
    ChecksTheFirstSplitOnly,
    CommitsWhatItStillOwns,
    RowsBeforeTheFence,
    TakesBackWhatItLost,
    PositionsWithoutRows,
    RowsWithoutPositions,
    RowsInAStepOfTheirOwn,
    WritesAtOnce,
    DiscardKeepsRows,
    DiscardsOnePartOnly,
    StoresTheStartsOfItsSplitsOnly,
    StaysFenced,
    ReleasesNothing,
    PassesOverEmptyIntervals,
    CountsNothing,
    FencesAsAFatalError,
}

#[derive(Debug, Clone)]
struct Stored {
    position: Position,
    epoch: u64,
}

type Key = (String, SplitId);

#[derive(Debug, Default)]
struct Store {
    rows: Vec<u64>,
    positions: BTreeMap<Key, Stored>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    store: Arc<Mutex<Store>>,
    flaw: Flaw,
}

impl Memory {
    pub(crate) fn with(flaw: Flaw) -> Self {
        Self { flaw, ..Self::default() }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }
}

impl AtomicTarget for Memory {
    type Item = u64;
    type Sink = MemorySink;

    fn sinks(&self, count: u32) -> Vec<MemorySink> {
        let sink = |_| MemorySink { memory: self.clone(), ..MemorySink::default() };
        (0..count).map(sink).collect()
    }

    fn item(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self) -> Result<Vec<u64>, BoxError> {
        Ok(self.store().rows.clone())
    }
}

#[derive(Debug, Default)]
pub(crate) struct MemorySink {
    memory: Memory,
    job: String,
    held: BTreeMap<SplitId, u64>,
    rows: Vec<(SplitId, u64)>,
    was_fenced: bool,
}

impl MemorySink {
    fn has(&self, flaw: Flaw) -> bool {
        self.memory.flaw == flaw
    }

    fn key(&self, split: &SplitId) -> Key {
        (self.job.clone(), split.clone())
    }

    fn is_owner(&self, store: &Store, split: &SplitId) -> bool {
        store.positions.get(&self.key(split)).map(|stored| stored.epoch) == self.held.get(split).copied()
    }

    fn fenced(&self, split: &SplitId) -> SinkError {
        if self.has(Flaw::FencesAsAFatalError) {
            return SinkError::new(ErrorClass::Fatal, "the positions differ");
        }
        SinkError::fenced(split.clone(), Owner::default())
    }

    fn store_starts(&self, store: &mut Store, assignment: &Assignment) {
        for stream in &assignment.streams {
            let is_new =
                !store.positions.keys().any(|(job, split)| *job == self.job && split.stream == stream.stream);
            for start in &stream.splits {
                let split = SplitId { stream: Arc::clone(&stream.stream), index: start.index };
                if self.has(Flaw::StoresTheStartsOfItsSplitsOnly) && !assignment.splits.contains(&split) {
                    continue;
                }
                let position = if is_new { start.start.clone() } else { start.earliest.clone() };
                store.positions.entry(self.key(&split)).or_insert(Stored { position, epoch: 0 });
            }
        }
    }

    fn check_owned(&mut self, store: &Store, positions: &Positions) -> Result<(), SinkError> {
        if self.has(Flaw::StaysFenced) && self.was_fenced {
            return Err(SinkError::new(ErrorClass::Fatal, "the sink is fenced"));
        }
        let checked = if self.has(Flaw::ChecksTheFirstSplitOnly) { 1 } else { usize::MAX };
        for (split, _) in positions.iter().take(checked) {
            if !self.is_owner(store, split) {
                self.was_fenced = true;
                return Err(self.fenced(split));
            }
        }
        Ok(())
    }

    fn move_positions(&self, store: &mut Store, positions: &Positions) {
        for (split, position) in positions {
            if let Some(stored) = store.positions.get_mut(&self.key(split)) {
                stored.position = position.clone();
            }
        }
    }
}

impl Sink<u64> for MemorySink {
    async fn open(&mut self, ctx: SinkContext) -> Result<(), SinkError> {
        self.job = ctx.job;
        Ok(())
    }

    async fn write(&mut self, batch: Batch<u64>) -> Result<(), SinkError> {
        let rows = batch.records().iter().map(|record| (batch.split(&record.origin).clone(), record.item));
        if self.has(Flaw::WritesAtOnce) {
            self.memory.store().rows.extend(rows.map(|(_, row)| row));
            return Ok(());
        }
        self.rows.extend(rows);
        Ok(())
    }

    async fn close(&mut self) {}
}

impl AtomicSink<u64> for MemorySink {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let memory = self.memory.clone();
        let mut store = memory.store();
        self.store_starts(&mut store, assignment);
        let lost = |split: &&SplitId| self.held.contains_key(*split) && !self.is_owner(&store, split);
        if let Some(lost) = assignment.splits.iter().find(lost)
            && !self.has(Flaw::TakesBackWhatItLost)
        {
            return Err(self.fenced(lost));
        }
        let mut positions = Positions::new();
        for split in &assignment.splits {
            let key = self.key(split);
            let Some(stored) = store.positions.get_mut(&key) else { continue };
            if !self.has(Flaw::ClaimsWithoutAFence) {
                stored.epoch += 1;
            }
            self.held.insert(split.clone(), stored.epoch);
            positions.set(split.clone(), stored.position.clone());
        }
        Ok(positions)
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        let memory = self.memory.clone();
        if self.has(Flaw::RowsInAStepOfTheirOwn) {
            self.check_owned(&memory.store(), positions)?;
            memory.store().rows.extend(self.rows.drain(..).map(|(_, row)| row));
            tokio::task::yield_now().await;
            self.move_positions(&mut memory.store(), positions);
            return Ok(Committed::default());
        }
        tokio::task::yield_now().await;
        let mut store = memory.store();
        if self.has(Flaw::PassesOverEmptyIntervals) && self.rows.is_empty() {
            return Ok(Committed::default());
        }
        if self.has(Flaw::RowsBeforeTheFence) {
            store.rows.extend(self.rows.drain(..).map(|(_, row)| row));
        }
        if self.has(Flaw::CommitsWhatItStillOwns) {
            let owned =
                self.rows.iter().filter(|(split, _)| self.is_owner(&store, split)).map(|(_, row)| *row);
            let owned = owned.collect::<Vec<_>>();
            store.rows.extend(owned);
            self.rows.clear();
        }
        self.check_owned(&store, positions)?;
        let rows = std::mem::take(&mut self.rows).into_iter().map(|(_, row)| row);
        if !self.has(Flaw::PositionsWithoutRows) {
            store.rows.extend(rows);
        }
        if !self.has(Flaw::RowsWithoutPositions) {
            self.move_positions(&mut store, positions);
        }
        Ok(Committed::default())
    }

    fn discard(&mut self) {
        match self.memory.flaw {
            Flaw::DiscardKeepsRows => {}
            Flaw::DiscardsOnePartOnly => self.rows.truncate(1),
            _ => self.rows.clear(),
        }
    }

    fn release(&mut self, splits: &[SplitId]) {
        if !self.has(Flaw::ReleasesNothing) {
            self.held.retain(|split, _| !splits.contains(split));
        }
    }

    fn pending(&self) -> Pending {
        let rows = if self.has(Flaw::CountsNothing) { 0 } else { self.rows.len() as u64 };
        Pending { rows, bytes: 8 * rows }
    }
}
