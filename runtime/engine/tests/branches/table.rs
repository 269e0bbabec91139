//! Tables as their targets keep them: they survive the sinks that write them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use levada_core::template::{IdempotentSink, TransactionName, TwoPhaseCommitSink, WriteContext};
use levada_core::{Batch, CheckpointId, ErrorClass, SinkContext, SinkError, Timestamp};
use tokio::sync::watch;

/// What a number has become on its way.
pub(crate) trait Number: Send + Sync + 'static {
    fn number(&self) -> u64;
}

impl Number for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl Number for String {
    fn number(&self) -> u64 {
        self.parse().unwrap()
    }
}

/// Fails a sink once, at a number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fault(Arc<Mutex<Option<u64>>>);

impl Fault {
    pub(crate) fn set(&self, at: u64) {
        *self.0.lock().unwrap() = Some(at);
    }

    fn check<T: Number>(&self, batch: &Batch<T>) -> Result<(), SinkError> {
        let mut at = self.0.lock().unwrap();
        if batch.records().iter().any(|record| at.is_some_and(|at| record.item.number() >= at)) {
            *at = None;
            return Err(SinkError::new(ErrorClass::Fatal, "asked to fail"));
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Kept {
    pending: BTreeMap<String, Vec<u64>>,
    /// In the order of the commits, with the checkpoint that each transaction is named after.
    visible: Vec<(CheckpointId, Vec<u64>)>,
    names: BTreeMap<String, CheckpointId>,
    watermarks: BTreeMap<u64, Timestamp>,
}

/// A table that is written in transactions.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    kept: Arc<Mutex<Kept>>,
    pub(crate) fault: Fault,
    /// Writers wait while this is set.
    pub(crate) is_held: Arc<watch::Sender<bool>>,
}

impl Default for Table {
    fn default() -> Self {
        Self { kept: Arc::default(), fault: Fault::default(), is_held: Arc::new(watch::channel(false).0) }
    }
}

impl Table {
    pub(crate) fn visible(&self) -> Vec<u64> {
        let kept = self.kept.lock().unwrap();
        kept.visible.iter().flat_map(|(_, numbers)| numbers.clone()).collect()
    }

    pub(crate) fn sorted(&self) -> Vec<u64> {
        let mut visible = self.visible();
        visible.sort_unstable();
        visible
    }

    /// Returns what transactions up to a checkpoint hold.
    pub(crate) fn up_to(&self, checkpoint: CheckpointId) -> Vec<u64> {
        let kept = self.kept.lock().unwrap();
        let up_to = kept.visible.iter().filter(|(of, _)| *of <= checkpoint);
        up_to.flat_map(|(_, numbers)| numbers.clone()).collect()
    }

    /// Returns the watermark under which each number was written.
    pub(crate) fn watermarks(&self) -> BTreeMap<u64, Timestamp> {
        self.kept.lock().unwrap().watermarks.clone()
    }
}

impl<T: Number> TwoPhaseCommitSink<T> for Table {
    type Handle = String;

    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn begin(&mut self, name: &TransactionName) -> Result<String, SinkError> {
        let mut kept = self.kept.lock().unwrap();
        let before = kept.names.insert(name.to_string(), name.checkpoint);
        assert_eq!(before, None, "the name {name} was used before");
        kept.pending.insert(name.to_string(), Vec::new());
        Ok(name.to_string())
    }

    async fn write(
        &mut self,
        handle: &mut String,
        batch: Batch<T>,
        ctx: &WriteContext,
    ) -> Result<(), SinkError> {
        self.is_held.subscribe().wait_for(|is_held| !is_held).await.unwrap();
        self.fault.check(&batch)?;
        let mut kept = self.kept.lock().unwrap();
        for record in batch.records() {
            assert_eq!(record.origin.timestamp, Timestamp(record.item.number() as i64));
            kept.watermarks.insert(record.item.number(), ctx.watermark);
            kept.pending.get_mut(handle).unwrap().push(record.item.number());
        }
        Ok(())
    }

    async fn pre_commit(&mut self, _: &mut String) -> Result<(), SinkError> {
        Ok(())
    }

    async fn commit(&mut self, handle: &String) -> Result<(), SinkError> {
        let mut kept = self.kept.lock().unwrap();
        if let Some(committed) = kept.pending.remove(handle) {
            let name = kept.names[handle];
            kept.visible.push((name, committed));
        }
        Ok(())
    }

    async fn abort(&mut self, handle: &String) -> Result<(), SinkError> {
        self.kept.lock().unwrap().pending.remove(handle);
        Ok(())
    }
}

/// A table whose rows may be written again: number, and how often.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    rows: Arc<Mutex<BTreeMap<u64, u32>>>,
    pub(crate) fault: Fault,
}

impl Rows {
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.rows.lock().unwrap().keys().copied().collect()
    }
}

impl<T: Number> IdempotentSink<T> for Rows {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<T>, _: &WriteContext) -> Result<(), SinkError> {
        self.fault.check(&batch)?;
        let mut rows = self.rows.lock().unwrap();
        batch.records().iter().for_each(|record| *rows.entry(record.item.number()).or_default() += 1);
        Ok(())
    }
}
