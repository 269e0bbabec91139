//! A source of numbers that a test can hold, and the tables of one job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{CheckpointId, ListState, SourceContext, SourceError, Spread, State, Storable, Timestamp};
use levada_engine::checkpoint::RestartStrategy;
use levada_engine::store::Store;
use levada_engine::{CheckpointedJob, Flow, Job};
use tokio::sync::Notify;

use crate::table::{Rows, Table};

/// Numbers come in so many ways: `way`, `way + WAYS`, … Each is read in order, by one subtask; it is the key, too.
pub(crate) const WAYS: u64 = 6;

pub(crate) fn way(number: &u64) -> u64 {
    number % WAYS
}

/// Holds the sources, and knows how far they are.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    up_to: Mutex<u64>,
    raised: Notify,
    /// For each checkpoint: the next number of each way.
    cuts: Mutex<BTreeMap<CheckpointId, BTreeMap<u64, u64>>>,
    emitted: Mutex<u64>,
}

impl Gate {
    /// Lets numbers below `up_to` pass.
    pub(crate) fn raise(&self, up_to: u64) {
        *self.up_to.lock().unwrap() = up_to;
        self.raised.notify_waiters();
    }

    pub(crate) fn emitted(&self) -> u64 {
        *self.emitted.lock().unwrap()
    }

    /// Returns the numbers before a checkpoint's barriers.
    pub(crate) fn before(&self, checkpoint: CheckpointId) -> Vec<u64> {
        let cuts = self.cuts.lock().unwrap();
        let mut before: Vec<u64> =
            cuts[&checkpoint].iter().flat_map(|(way, next)| (*way..*next).step_by(WAYS as usize)).collect();
        before.sort_unstable();
        before
    }
}

#[derive(Debug)]
struct Numbers {
    end: u64,
    /// The next number of each way that this subtask reads.
    next: Vec<u64>,
    gate: Arc<Gate>,
}

impl SourceFunction for Numbers {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        let own = |way: &u64| way % u64::from(ctx.parallelism) == u64::from(ctx.subtask);
        self.next = match restored.get("ways") {
            Some(list) => list.elements.iter().map(|bytes| u64::load(1, bytes).unwrap()).collect(),
            None => (0..WAYS).filter(own).collect(),
        };
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        let Some(next) = self.next.iter_mut().filter(|next| **next < self.end).min() else {
            return Ok(Next::End);
        };
        loop {
            let raised = self.gate.raised.notified();
            if *next < *self.gate.up_to.lock().unwrap() {
                break;
            }
            raised.await;
        }
        out.record_at(*next, Timestamp(*next as i64));
        out.watermark(Timestamp(*next as i64));
        *next += WAYS;
        *self.gate.emitted.lock().unwrap() += 1;
        Ok(Next::More)
    }

    fn snapshot(&mut self, checkpoint: CheckpointId) -> State {
        let mut cuts = self.gate.cuts.lock().unwrap();
        cuts.entry(checkpoint).or_default().extend(self.next.iter().map(|next| (way(next), *next)));
        let elements = self.next.iter().map(|next| {
            let mut bytes = Vec::new();
            next.store(&mut bytes);
            bytes
        });
        State::new().with("ways", ListState::new(Spread::Split, 1, elements.collect()))
    }
}

/// A source and the tables of a job.
#[derive(Default)]
pub(crate) struct Scene {
    pub(crate) gate: Arc<Gate>,
    pub(crate) main: Table,
    pub(crate) side: Table,
    pub(crate) inner: Table,
    pub(crate) rows: Rows,
}

impl Scene {
    pub(crate) fn numbers(&self, parallelism: u32, end: u64) -> Flow<u64, u64> {
        let gate = Arc::clone(&self.gate);
        Job::new("numbers").parallelism(parallelism).source_function("numbers", move |_| Numbers {
            end,
            next: Vec::new(),
            gate: Arc::clone(&gate),
        })
    }
}

/// Lets a job fail as often as its test makes it.
pub(crate) fn restarting(job: CheckpointedJob) -> CheckpointedJob {
    let delay = Duration::from_millis(1);
    job.restarts(RestartStrategy::FixedDelay { attempts: 9, delay })
}

pub(crate) async fn memory() -> Store {
    Store::open("memory:").await.unwrap()
}
