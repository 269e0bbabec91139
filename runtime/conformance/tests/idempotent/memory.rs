//! A table in memory.

use std::sync::{Arc, Mutex, MutexGuard};

use levada_conformance::IdempotentTarget;
use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, BoxError, SinkContext, SinkError};

/// What is wrong with a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Flaw {
    #[default]
    None,
    Increments,
    KeepsTheFirst,
    Inserts,
    FlushesAtTheCloseOnly,
    FlushesWholeBlocksOnly,
    LosesDeletions,
    ReversesABatch,
}

pub(crate) type Change = (u64, Option<u64>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    rows: Arc<Mutex<Vec<(u64, u64)>>>,
    flaw: Flaw,
}

impl Memory {
    pub(crate) fn with(flaw: Flaw) -> Self {
        Self { flaw, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.rows.lock().unwrap()
    }

    fn apply(&self, (key, version): Change) {
        let mut rows = self.lock();
        let found = rows.iter_mut().find(|(known, _)| *known == key);
        match (found, version) {
            (_, None) if self.flaw == Flaw::LosesDeletions => {}
            (_, None) => rows.retain(|(known, _)| *known != key),
            (Some((_, held)), Some(_)) if self.flaw == Flaw::Increments => *held += 1,
            (Some(_), Some(_)) if self.flaw == Flaw::KeepsTheFirst => {}
            (Some((_, held)), Some(version)) if self.flaw != Flaw::Inserts => *held = version,
            (_, Some(version)) => rows.push((key, version)),
        }
    }
}

impl IdempotentTarget for Memory {
    type Item = Change;
    type Sink = MemorySink;

    fn sinks(&self, count: u32) -> Vec<MemorySink> {
        (0..count).map(|_| MemorySink { memory: self.clone(), buffered: Vec::new() }).collect()
    }

    fn item(&self, key: u64, version: u64) -> Change {
        (key, Some(version))
    }

    fn deletion(&self, key: u64) -> Option<Change> {
        Some((key, None))
    }

    async fn rows(&self) -> Result<Vec<(u64, u64)>, BoxError> {
        Ok(self.lock().clone())
    }
}

#[derive(Debug)]
pub(crate) struct MemorySink {
    memory: Memory,
    buffered: Vec<Change>,
}

impl MemorySink {
    fn write(&mut self) {
        self.buffered.drain(..).for_each(|change| self.memory.apply(change));
    }
}

impl IdempotentSink<Change> for MemorySink {
    async fn open(&mut self, _ctx: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<Change>, _ctx: &WriteContext) -> Result<(), SinkError> {
        let mut changes = batch.records().iter().map(|record| record.item).collect::<Vec<_>>();
        if self.memory.flaw == Flaw::ReversesABatch {
            changes.reverse();
        }
        self.buffered.extend(changes);
        if self.buffered.len() > 3 {
            self.write();
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        let is_due = match self.memory.flaw {
            Flaw::FlushesAtTheCloseOnly => false,
            Flaw::FlushesWholeBlocksOnly => self.buffered.len() > 1,
            _ => true,
        };
        if is_due {
            self.write();
        }
        Ok(())
    }

    async fn close(&mut self) {
        if self.memory.flaw == Flaw::FlushesAtTheCloseOnly {
            self.write();
        }
    }
}
