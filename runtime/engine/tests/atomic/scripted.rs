//! A source that does what the test tells it, step by step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::{
    Assignment, BatchBuilder, Budget, Polled, Position, Source, SourceContext, SourceError, SplitId,
    SplitStart, StreamId, StreamStart,
};
use levada_engine::{Input, Job, JobHandle, RunnableJob};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::table::{MemorySink, Table};

/// The values of each split's records; the offset is the index.
pub(crate) type Logs = Vec<Vec<String>>;

/// Names a split of the one stream.
pub(crate) fn split(index: u32) -> SplitId {
    SplitId::new("t", index)
}

fn splits(indexes: &[u32]) -> Vec<SplitId> {
    indexes.iter().copied().map(split).collect()
}

/// Makes logs of these lengths, whose values are their coordinates.
pub(crate) fn numbered(lengths: &[usize]) -> Logs {
    let log_of =
        |(index, length): (usize, &usize)| (0..*length).map(|at| format!("t-{index}@{at}")).collect();
    lengths.iter().enumerate().map(log_of).collect()
}

/// Says that these splits are the subtask's, of a stream with `all` splits that starts at its beginning.
pub(crate) fn assigned(indexes: &[u32], all: usize) -> Polled {
    let start_of = |index| SplitStart { index, start: Position::at(0), earliest: Position::at(0) };
    Polled::Assigned(Assignment {
        splits: splits(indexes),
        streams: vec![StreamStart {
            stream: Arc::from("t"),
            id: StreamId(Arc::from("t")),
            splits: (0..all as u32).map(start_of).collect(),
        }],
        ..Assignment::default()
    })
}

/// What one poll does: appends, then says.
#[derive(Debug)]
pub(crate) struct Step {
    /// How many records of which splits.
    pub(crate) read: Vec<(u32, u64)>,
    /// How many offsets without a record of which splits.
    pub(crate) holes: Vec<(u32, u64)>,
    pub(crate) then: Result<Polled, SourceError>,
}

impl Step {
    pub(crate) fn say(polled: Polled) -> Self {
        Self { read: Vec::new(), holes: Vec::new(), then: Ok(polled) }
    }
}

/// What the engine asked of the source so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Calls of `poll` that began. The engine is done with a step when the poll after it begins.
    polls: u64,
    /// Positions of each `add`.
    pub(crate) added: Vec<BTreeMap<u32, u64>>,
    /// Splits of each `remove`.
    pub(crate) removed: Vec<Vec<u32>>,
    pub(crate) closed: u64,
}

#[derive(Debug)]
pub(crate) struct ScriptedSource {
    logs: Arc<Logs>,
    steps: mpsc::UnboundedReceiver<Step>,
    seen: watch::Sender<Seen>,
    /// Where each added split stands.
    at: BTreeMap<u32, u64>,
    budget: Option<Budget>,
    pub(crate) hangs_in_open: bool,
}

impl ScriptedSource {
    fn append(&mut self, step: &Step, out: &mut BatchBuilder) {
        let mut bytes = 0;
        for (index, count) in &step.read {
            let Some(at) = self.at.get_mut(index) else { continue };
            let log = &self.logs[*index as usize];
            let end = (*at + count).min(log.len() as u64);
            let number = out.split(&split(*index));
            for offset in *at..end {
                let value = log[offset as usize].as_bytes();
                bytes += value.len();
                out.push(number, RawRecord { offset, value: Some(value), ..RawRecord::default() });
            }
            *at = end;
        }
        for (index, count) in &step.holes {
            let Some(at) = self.at.get_mut(index) else { continue };
            *at += count;
            let number = out.split(&split(*index));
            out.advance(number, Position::at(*at));
        }
        let budget = self.budget.as_ref().expect("the source is open");
        out.hold(budget.try_acquire(bytes).expect("the test stays within its budget"));
    }
}

impl Source for ScriptedSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        self.budget = Some(ctx.budget);
        if self.hangs_in_open {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        self.seen.send_modify(|seen| seen.polls += 1);
        let Some(step) = self.steps.recv().await else {
            return std::future::pending().await;
        };
        self.append(&step, out);
        step.then
    }

    fn add(&mut self, splits: Vec<(SplitId, Position)>) -> Result<(), SourceError> {
        let positions: BTreeMap<u32, u64> =
            splits.into_iter().map(|(split, position)| (split.index, position.next)).collect();
        self.at.extend(&positions);
        self.seen.send_modify(|seen| seen.added.push(positions));
        Ok(())
    }

    fn remove(&mut self, splits: &[SplitId]) -> Result<(), SourceError> {
        let removed: Vec<u32> = splits.iter().map(|split| split.index).collect();
        self.at.retain(|index, _| !removed.contains(index));
        self.seen.send_modify(|seen| seen.removed.push(removed));
        Ok(())
    }

    fn pause(&mut self, _splits: &[SplitId]) -> Result<(), SourceError> {
        Ok(())
    }

    fn resume(&mut self, _splits: &[SplitId]) -> Result<(), SourceError> {
        Ok(())
    }

    async fn close(&mut self) {
        self.seen.send_modify(|seen| seen.closed += 1);
    }
}

/// The test's end of a scripted source.
#[derive(Debug)]
pub(crate) struct Script {
    steps: mpsc::UnboundedSender<Step>,
    seen: watch::Receiver<Seen>,
    splits: usize,
    sent: u64,
}

impl Script {
    pub(crate) fn of(logs: &Arc<Logs>) -> (Script, ScriptedSource) {
        let (steps, receiver) = mpsc::unbounded_channel();
        let (seen, watching) = watch::channel(Seen::default());
        let script = Script { steps, seen: watching, splits: logs.len(), sent: 0 };
        let source = ScriptedSource {
            logs: Arc::clone(logs),
            steps: receiver,
            seen,
            at: BTreeMap::new(),
            budget: None,
            hangs_in_open: false,
        };
        (script, source)
    }

    /// Sends a step; a source that is gone already does not take it.
    pub(crate) fn send(&mut self, step: Step) {
        self.sent += 1;
        let _ = self.steps.send(step);
    }

    pub(crate) fn assign(&mut self, indexes: &[u32]) {
        self.send(Step::say(assigned(indexes, self.splits)));
    }

    pub(crate) fn read(&mut self, read: &[(u32, u64)]) {
        self.read_and(read, Polled::Batch);
    }

    /// One poll that appends records and says something else besides.
    pub(crate) fn read_and(&mut self, read: &[(u32, u64)], then: Polled) {
        self.send(Step { read: read.to_vec(), ..Step::say(then) });
    }

    pub(crate) fn hole(&mut self, index: u32, count: u64) {
        self.send(Step { holes: vec![(index, count)], ..Step::say(Polled::Batch) });
    }

    pub(crate) fn lose(&mut self, indexes: &[u32]) {
        self.send(Step::say(Polled::Lost(splits(indexes))));
    }

    pub(crate) fn revoke(&mut self, indexes: &[u32], within: Duration) {
        self.send(Step::say(revoked(indexes, within)));
    }

    pub(crate) fn end(&mut self) {
        self.send(Step::say(Polled::End));
    }

    /// Waits until the engine has handled every step so far and asks for the next.
    pub(crate) async fn handled(&mut self) {
        let sent = self.sent;
        self.until(|seen| seen.polls > sent).await;
    }

    /// Waits until the engine has asked something of the source.
    pub(crate) async fn until(&mut self, seen: impl FnMut(&Seen) -> bool) {
        promptly(self.seen.wait_for(seen)).await.expect("the source is there");
    }

    /// Returns the positions of the `add` before now.
    pub(crate) fn last_added(&self) -> BTreeMap<u32, u64> {
        self.seen.borrow().added.last().cloned().expect("splits were added")
    }

    pub(crate) fn closed(&self) -> u64 {
        self.seen.borrow().closed
    }

    /// Waits until the source is dropped, which its task does last.
    pub(crate) async fn gone(&self) {
        promptly(self.steps.closed()).await;
    }
}

pub(crate) fn revoked(indexes: &[u32], within: Duration) -> Polled {
    Polled::Revoked { splits: splits(indexes), within }
}

/// Longer than anything here may take, so reaching it is a hang. Where the clock is paused nobody waits for it.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Turns a hang into a failure.
pub(crate) async fn promptly<V>(future: impl Future<Output = V>) -> V {
    timeout(HANG, future).await.expect("no hang")
}

/// Hands out each value once, by subtask.
pub(crate) fn once<V: Send>(values: Vec<V>) -> impl Fn(u32) -> V + Send {
    let values: Mutex<Vec<Option<V>>> = Mutex::new(values.into_iter().map(Some).collect());
    move |subtask| {
        let mut values = values.lock().expect("no panic while it is held");
        values[subtask as usize].take().expect("made once a subtask")
    }
}

/// Reads a record's value as the row to write.
pub(crate) fn text(input: Input<'_, ()>) -> Result<String, levada_core::BoxError> {
    let value = input.value().unwrap_or_default();
    Ok(String::from_utf8(value.to_vec())?)
}

/// A job of one subtask that writes each record as it is.
pub(crate) fn copying(
    job: Job,
    logs: Logs,
    table: &Table,
) -> (Script, RunnableJob<ScriptedSource, MemorySink, String>) {
    let (script, source) = Script::of(&Arc::new(logs));
    let job = job
        .source("log", once(vec![source]))
        .map("text", text)
        .atomic_sink("table", once(vec![table.sink("us")]));
    (script, job)
}

/// Starts a job of one subtask that writes each record as it is.
pub(crate) fn start(job: Job, logs: Logs, table: &Table) -> (Script, JobHandle) {
    let (script, job) = copying(job, logs, table);
    (script, job.start().expect("the shape is right"))
}
