//! A table in memory as an atomic sink: rows and positions behind one lock, ownership by epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_core::error::Owner;
use levada_core::{
    Assignment, AtomicSink, Batch, Committed, ErrorClass, Pending, Position, Positions, Sink, SinkContext,
    SinkError, SplitId, WriteOrder,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::scripted::{Logs, promptly, split};

/// Where a commit waits until the test lets it go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    /// Before it is compared and set.
    Before,
    /// When it is visible already, but the sink does not know.
    After,
}

#[derive(Debug, Clone)]
struct Stored {
    position: u64,
    epoch: u64,
    owner: String,
}

/// One commit that went through.
#[derive(Debug, Clone)]
pub(crate) struct CommitSeen {
    pub(crate) rows: usize,
    pub(crate) positions: BTreeMap<u32, u64>,
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    /// How often each row is there.
    rows: BTreeMap<String, u64>,
    positions: BTreeMap<SplitId, Stored>,
    /// Commits that were begun, whatever became of them.
    pub(crate) begun: usize,
    pub(crate) commits: Vec<CommitSeen>,
    pub(crate) claims: usize,
    /// Discards that dropped at least one row.
    pub(crate) discards: usize,
    pub(crate) released: Vec<u32>,
    pub(crate) written: u64,
    pub(crate) closed: u64,
    block: Option<Block>,
    fail_commits: bool,
    hang_in_open: bool,
    hang_in_close: bool,
    miscount: u64,
}

/// The table as the test sees it; cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Table(Arc<watch::Sender<Store>>);

impl Table {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Store::default())))
    }

    pub(crate) fn sink(&self, owner: &str) -> MemorySink {
        MemorySink {
            table: self.clone(),
            owner: owner.to_owned(),
            held: BTreeMap::new(),
            batches: Vec::new(),
        }
    }

    /// Lists the rows, each as often as it is there.
    pub(crate) fn rows(&self) -> Vec<String> {
        let store = self.0.borrow();
        let repeated = |(row, count): (&String, &u64)| std::iter::repeat_n(row.clone(), *count as usize);
        store.rows.iter().flat_map(repeated).collect()
    }

    pub(crate) fn position(&self, index: u32) -> u64 {
        let store = self.0.borrow();
        store.positions.get(&split(index)).map_or(0, |stored| stored.position)
    }

    pub(crate) fn look<V>(&self, look: impl FnOnce(&Store) -> V) -> V {
        look(&self.0.borrow())
    }

    /// Waits for something to be so.
    pub(crate) async fn until(&self, is_so: impl FnMut(&Store) -> bool) {
        promptly(self.so(is_so)).await;
    }

    async fn so(&self, is_so: impl FnMut(&Store) -> bool) {
        let mut watching = self.0.subscribe();
        watching.wait_for(is_so).await.expect("the table is there");
    }

    pub(crate) fn block(&self, block: Block) {
        self.0.send_modify(|store| store.block = Some(block));
    }

    pub(crate) fn unblock(&self) {
        self.0.send_modify(|store| store.block = None);
    }

    pub(crate) fn fail_commits(&self) {
        self.0.send_modify(|store| store.fail_commits = true);
    }

    pub(crate) fn hang_in_open(&self) {
        self.0.send_modify(|store| store.hang_in_open = true);
    }

    pub(crate) fn hang_in_close(&self) {
        self.0.send_modify(|store| store.hang_in_close = true);
    }

    /// Makes every commit report more rows than it wrote.
    pub(crate) fn miscount_by(&self, rows: u64) {
        self.0.send_modify(|store| store.miscount = rows);
    }

    /// Another process claims a split.
    pub(crate) fn rival_claims(&self, index: u32, rival: &str) {
        self.0.send_modify(|store| {
            store.take(&split(index), rival);
        });
    }

    /// Another process commits records of a split, if it still owns it. Returns how many.
    pub(crate) fn rival_commits(&self, index: u32, rival: &str, logs: &Logs, count: u64) -> u64 {
        let mut written = 0;
        self.0.send_modify(|store| {
            let Some(stored) = store.positions.get_mut(&split(index)) else { return };
            if stored.owner != rival {
                return;
            }
            let log = &logs[index as usize];
            let end = (stored.position + count).min(log.len() as u64);
            let rows = &log[stored.position as usize..end as usize];
            written = rows.len() as u64;
            stored.position = end;
            for row in rows {
                *store.rows.entry(row.clone()).or_default() += 1;
            }
        });
        written
    }

    /// Tells what must be in the table, given where its positions stand: every record before, once.
    pub(crate) fn rows_before_positions(&self, logs: &Logs) -> Vec<String> {
        let before =
            |(index, log): (usize, &Vec<String>)| log[..self.position(index as u32) as usize].to_vec();
        let mut rows: Vec<String> = logs.iter().enumerate().flat_map(before).collect();
        rows.sort();
        rows
    }
}

/// All records of these logs, sorted.
pub(crate) fn all_of(logs: &Logs) -> Vec<String> {
    let mut rows: Vec<String> = logs.iter().flatten().cloned().collect();
    rows.sort();
    rows
}

impl Store {
    fn take(&mut self, split: &SplitId, owner: &str) -> (u64, u64) {
        let stored = self.positions.entry(split.clone()).or_insert(Stored {
            position: 0,
            epoch: 0,
            owner: String::new(),
        });
        stored.epoch += 1;
        stored.owner = owner.to_owned();
        (stored.epoch, stored.position)
    }

    /// Fails unless every one of these splits is still held under its epoch.
    fn check_fence<'s>(
        &self,
        held: &BTreeMap<SplitId, u64>,
        splits: impl Iterator<Item = &'s SplitId>,
    ) -> Result<(), SinkError> {
        for split in splits {
            let stored = self.positions.get(split).expect("claimed before");
            if held.get(split) != Some(&stored.epoch) {
                let owner = Owner { name: stored.owner.clone(), since: format!("epoch {}", stored.epoch) };
                return Err(SinkError::fenced(split.clone(), owner));
            }
        }
        Ok(())
    }

    /// Compares and sets, and adds the rows. Refuses rows that the positions do not cover.
    fn apply(
        &mut self,
        held: &BTreeMap<SplitId, u64>,
        batches: &[Batch<String>],
        positions: &Positions,
    ) -> Result<Committed, SinkError> {
        if self.fail_commits {
            return Err(SinkError::new(ErrorClass::Fatal, "commit as the test wants it"));
        }
        self.check_fence(held, positions.iter().map(|(split, _)| split))?;
        for batch in batches {
            for record in batch.records() {
                let stored = &self.positions[batch.split(&record.origin)];
                let offered = positions.get(batch.split(&record.origin));
                let covered = stored.position..offered.map_or(0, |position| position.next);
                if !covered.contains(&record.origin.offset) {
                    let place = batch.coordinates(&record.origin);
                    let message = format!("row {place} is not covered by {covered:?}");
                    return Err(SinkError::new(ErrorClass::Fatal, message));
                }
            }
        }
        let rows = || batches.iter().flat_map(Batch::records);
        let written = rows().count();
        for row in rows() {
            *self.rows.entry(row.item.clone()).or_default() += 1;
        }
        for (split, position) in positions {
            self.positions.get_mut(split).expect("checked above").position = position.next;
        }
        self.commits.push(CommitSeen {
            rows: written,
            positions: positions.iter().map(|(split, position)| (split.index, position.next)).collect(),
            at: Instant::now(),
        });
        Ok(Committed { written: written as u64 + self.miscount, ..Committed::default() })
    }
}

/// One subtask's way into the table. Keeps whole batches, and with them their share of the byte budget.
#[derive(Debug)]
pub(crate) struct MemorySink {
    table: Table,
    owner: String,
    /// The epoch under which each split is held.
    held: BTreeMap<SplitId, u64>,
    batches: Vec<Batch<String>>,
}

impl Sink<String> for MemorySink {
    async fn open(&mut self, _ctx: SinkContext) -> Result<(), SinkError> {
        if self.table.look(|store| store.hang_in_open) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn write(&mut self, batch: Batch<String>) -> Result<(), SinkError> {
        self.table.0.send_modify(|store| store.written += batch.len() as u64);
        self.batches.push(batch);
        Ok(())
    }

    async fn close(&mut self) {
        if self.table.look(|store| store.hang_in_close) {
            std::future::pending::<()>().await;
        }
        self.table.0.send_modify(|store| store.closed += 1);
    }
}

impl AtomicSink<String> for MemorySink {
    async fn claim(&mut self, assignment: &Assignment) -> Result<Positions, SinkError> {
        let Self { table, owner, held, .. } = self;
        let mut claimed = Ok(Positions::new());
        table.0.send_modify(|store| {
            store.claims += 1;
            let again = assignment.splits.iter().filter(|split| held.contains_key(split));
            claimed = store.check_fence(held, again).map(|()| {
                let mut positions = Positions::new();
                for split in &assignment.splits {
                    let (epoch, position) = store.take(split, owner);
                    held.insert(split.clone(), epoch);
                    positions.set(split.clone(), Position::at(position));
                }
                positions
            });
        });
        claimed
    }

    async fn commit(&mut self, positions: &Positions) -> Result<Committed, SinkError> {
        self.table.0.send_modify(|store| store.begun += 1);
        self.table.so(|store| store.block != Some(Block::Before)).await;
        let mut outcome = Ok(Committed::default());
        self.table.0.send_modify(|store| outcome = store.apply(&self.held, &self.batches, positions));
        self.table.so(|store| store.block != Some(Block::After)).await;
        if outcome.is_ok() {
            self.batches.clear();
        }
        outcome
    }

    fn discard(&mut self) {
        if !self.batches.is_empty() {
            self.table.0.send_modify(|store| store.discards += 1);
        }
        self.batches.clear();
    }

    fn release(&mut self, splits: &[SplitId]) {
        self.held.retain(|split, _| !splits.contains(split));
        let released = splits.iter().map(|split| split.index);
        self.table.0.send_modify(|store| store.released.extend(released));
    }

    fn pending(&self) -> Pending {
        let records = || self.batches.iter().flat_map(Batch::records);
        Pending {
            rows: records().count() as u64,
            bytes: records().map(|record| record.item.len() as u64).sum(),
        }
    }

    /// It counts rows, and replaces none.
    fn write_order(&self) -> WriteOrder {
        WriteOrder::Any
    }
}
