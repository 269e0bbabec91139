//! How long a checkpoint takes when nothing else happens: four splits, four subtasks, a directory.

use std::error::Error;
use std::future::pending;

use levada_benches::measure::Stopwatch;
use levada_core::{BatchBuilder, Polled, Position, Source, SourceContext, SourceError, SplitId};
use levada_engine::Job;
use levada_engine::store::Store;

use crate::load::{NullSink, assignment};

const SUBTASKS: u32 = 4;

/// One split that nothing comes from.
#[derive(Debug)]
struct Quiet {
    split: SplitId,
    is_assigned: bool,
}

impl Source for Quiet {
    async fn open(&mut self, _: SourceContext) -> Result<(), SourceError> {
        Ok(())
    }

    async fn poll(&mut self, _: &mut BatchBuilder) -> Result<Polled, SourceError> {
        if self.is_assigned {
            return pending().await;
        }
        self.is_assigned = true;
        Ok(Polled::Assigned(assignment(&self.split)))
    }

    fn add(&mut self, _: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
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

/// Takes so many checkpoints, from trigger to durable entry, and returns how long they took.
pub(crate) async fn checkpoints(count: usize) -> Result<serde_json::Value, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(&folder.path().display().to_string()).await?;
    let quiet = |subtask| Quiet { split: SplitId::new("quiet", subtask), is_assigned: false };
    let job = Job::new("idle").parallelism(SUBTASKS).source("quiet", quiet).checkpointed();
    let job = job.map("number", |_| Ok(0)).idempotent_sink("null", |_| NullSink::default());
    let job = job.start(store)?;
    let mut milliseconds = Vec::new();
    for _ in 0..count {
        let watch = Stopwatch::default();
        job.trigger_checkpoint().await?;
        milliseconds.push(watch.elapsed().as_secs_f64() * 1e3);
    }
    job.stop().await?;
    milliseconds.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let place = (milliseconds.len() as f64 * part) as usize;
        (milliseconds[place.min(milliseconds.len() - 1)] * 100.0).round() / 100.0
    };
    Ok(serde_json::json!({"checkpoints": count, "median_ms": at(0.5), "p99_ms": at(0.99)}))
}
