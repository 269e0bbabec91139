//! A source with a state that does not fit into an entry, and a sink that keeps what it has seen by key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use levada_core::template::{Emit, IdempotentSink, Next, SourceFunction, WriteContext};
use levada_core::{
    Batch, CheckpointId, ListState, SinkContext, SinkError, SourceContext, SourceError, Spread, State,
};
use levada_engine::driver::LossPolicy;
use levada_engine::{CheckpointedJob, Job};

use crate::scene::{Count, Scene, options};

/// A source that counts, with so many bytes of ballast in each subtask's state.
#[derive(Debug)]
struct Heavy {
    count: Count,
    ballast: usize,
}

impl SourceFunction for Heavy {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        self.count.open(ctx, restored).await
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        self.count.next(out).await
    }

    fn snapshot(&mut self, checkpoint: CheckpointId) -> State {
        let ballast = ListState::new(Spread::Split, 1, vec![vec![7; self.ballast]]);
        self.count.snapshot(checkpoint).with("ballast", ballast)
    }
}

/// Counts, with parts beside the entries, into a two-phase sink.
pub(crate) fn heavy_job(scene: &Scene, parallelism: u32, ballast: usize) -> CheckpointedJob {
    let (source, target) = (scene.source(), scene.target.clone());
    Job::new("count")
        .parallelism(parallelism)
        .source_function("numbers", move |subtask| Heavy { count: source(subtask), ballast })
        .key_by("by last digit", |number| number % 10)
        .two_phase_sink("table", options(LossPolicy::Fail), move |_| target.sink("table"))
}

/// How often each number was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows(Arc<Mutex<BTreeMap<u64, u32>>>);

impl Rows {
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.lock().unwrap().keys().copied().collect()
    }

    pub(crate) fn written_again(&self) -> usize {
        self.0.lock().unwrap().values().filter(|times| **times > 1).count()
    }
}

impl IdempotentSink<u64> for Rows {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        let mut rows = self.0.lock().unwrap();
        for record in batch.records() {
            *rows.entry(record.item).or_default() += 1;
        }
        Ok(())
    }
}

/// Counts, with parts beside the entries, into an idempotent sink.
pub(crate) fn idempotent_job(scene: &Scene, rows: &Rows) -> CheckpointedJob {
    let (source, rows) = (scene.source(), rows.clone());
    Job::new("count")
        .parallelism(2)
        .source_function("numbers", move |subtask| Heavy { count: source(subtask), ballast: 10_000 })
        .idempotent_sink("rows", move |_| rows.clone())
}
