//! A large union list, stored by several subtasks and restored whole by each of them, in a process of its own.

use std::error::Error;
use std::path::Path;

use levada_benches::measure::{self, Run, Stopwatch};
use levada_core::template::{Emit, IdempotentSink, Next, SourceFunction, WriteContext};
use levada_core::{
    Batch, CheckpointId, ListState, SinkContext, SinkError, SourceContext, SourceError, Spread, State,
};
use levada_engine::Job;
use levada_engine::store::Store;
use tokio::sync::mpsc;

/// Bytes of an element.
const ELEMENT: usize = 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) mib: usize,
    pub(crate) subtasks: u32,
}

impl Size {
    fn elements(self) -> usize {
        self.mib * (1 << 20) / ELEMENT
    }
}

/// Holds a list, and emits nothing.
#[derive(Debug)]
struct Holder {
    size: Size,
    state: State,
    /// Bytes that a subtask was given.
    opened: mpsc::UnboundedSender<u64>,
}

impl SourceFunction for Holder {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        let bytes = |list: &ListState| list.elements.iter().map(|element| element.len() as u64).sum();
        self.opened.send(restored.get("list").map_or(0, bytes)).ok();
        self.state = match restored.is_empty() {
            false => restored.clone(),
            true => {
                let own = self.size.elements() / self.size.subtasks as usize;
                let element = |number: usize| vec![(number % 251) as u8 ^ ctx.subtask as u8; ELEMENT];
                State::new().with("list", ListState::new(Spread::Union, 1, (0..own).map(element).collect()))
            }
        };
        Ok(())
    }

    async fn next(&mut self, _: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        std::future::pending().await
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        std::mem::take(&mut self.state)
    }
}

#[derive(Debug)]
struct Nothing;

impl IdempotentSink<u64> for Nothing {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, _: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        Ok(())
    }
}

async fn start(
    folder: &Path,
    size: Size,
    opened: mpsc::UnboundedSender<u64>,
) -> Result<levada_engine::CheckpointedHandle, Box<dyn Error>> {
    let holder = move |_| Holder { size, state: State::new(), opened: opened.clone() };
    let job = Job::new("restore").parallelism(size.subtasks).source_function("holder", holder);
    let job = job.idempotent_sink("nothing", |_| Nothing);
    Ok(job.start(Store::open(&folder.display().to_string()).await?)?)
}

/// Stores the list with a last checkpoint.
pub(crate) async fn store(folder: &Path, size: Size) -> Result<Run, Box<dyn Error>> {
    let watch = Stopwatch::default();
    let (opened, _) = mpsc::unbounded_channel();
    let mut job = start(folder, size, opened).await?;
    job.stop().await?;
    job.wait().await?;
    Ok(watch.stop(size.elements() as u64))
}

/// Restores the list: from the start until the last subtask has it.
pub(crate) async fn restore(folder: &Path, size: Size) -> Result<Run, Box<dyn Error>> {
    let watch = Stopwatch::default();
    let (opened, mut given) = mpsc::unbounded_channel();
    let job = start(folder, size, opened).await?;
    let mut found = 0;
    for _ in 0..size.subtasks {
        found += given.recv().await.ok_or("the job ended")?;
    }
    let all = (size.elements() * ELEMENT) as u64 * u64::from(size.subtasks);
    if found != all {
        return Err(format!("{found} of {all} bytes were restored").into());
    }
    let run = watch.stop(size.elements() as u64);
    job.cancel();
    Ok(run)
}

/// Stores and restores, in a process each.
pub(crate) fn measure(mib: usize, subtasks: u32) -> Result<serde_json::Value, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let passed_on = [
        "--state-mib".to_owned(),
        mib.to_string(),
        "--subtasks".to_owned(),
        subtasks.to_string(),
        "--folder".to_owned(),
        folder.path().display().to_string(),
    ];
    let runs = measure::alternate(&["store", "restore"], 1, &passed_on)?;
    let figures = |run: &Run| serde_json::json!({"seconds": (run.seconds * 100.0).round() / 100.0, "peak_mib": run.peak_mib.round()});
    Ok(serde_json::json!({"store": figures(&runs["store"][0]), "restore": figures(&runs["restore"][0])}))
}
