//! A table that does not mind a repetition.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, SinkContext, SinkError};

use crate::scripted::Faults;

#[derive(Debug, Default)]
pub(crate) struct Table {
    buffered: Vec<u64>,
    pub(crate) rows: BTreeSet<u64>,
    pub(crate) calls: Vec<&'static str>,
    pub(crate) faults: Faults,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct BufferingSink(Arc<Mutex<Table>>);

impl BufferingSink {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap()
    }

    fn call(&self, verb: &'static str, effect: impl FnOnce(&mut Table)) -> Result<(), SinkError> {
        let mut table = self.lock();
        let entered = table.faults.enter(verb)?;
        table.calls.push(verb);
        effect(&mut table);
        entered.leave()
    }
}

impl IdempotentSink<u64> for BufferingSink {
    async fn open(&mut self, _ctx: SinkContext) -> Result<(), SinkError> {
        self.call("open", |table| table.buffered.clear())
    }

    async fn upsert(&mut self, batch: Batch<u64>, _ctx: &WriteContext) -> Result<(), SinkError> {
        self.call("upsert", |table| table.buffered.extend(batch.records().iter().map(|record| record.item)))
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        self.call("flush", |table| {
            let buffered = std::mem::take(&mut table.buffered);
            table.rows.extend(buffered);
        })
    }
}
