//! What engine and loop have in common, and one run of each.

use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levada_benches::measure::{Run, Stopwatch};
use levada_core::batch::RawRecord;
use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{
    Assignment, Batch, BatchBuilder, BoxError, Budget, Polled, Position, SinkContext, SinkError, Source,
    SourceContext, SourceError, SplitId, SplitStart, StreamId, StreamStart,
};
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::store::Store;
use levada_engine::{Input, Job};

/// Records of a batch, as the Kafka source makes them.
const BATCH: u64 = 4096;
/// Bytes of a record.
const VALUE: usize = 100;
/// The bytes that may be in flight.
const BUDGET: usize = 256 << 20;
/// Batches that the loop keeps, about as many as are under way in the engine: with fewer, the allocator gives the memory
/// of each batch back to the system and gets it anew, which takes longer than all the rest.
const ALIVE: usize = 8;
/// From one checkpoint to the next.
pub(crate) const EACH_SECOND: Duration = Duration::from_secs(1);

/// Makes batches of one split until its time is over.
#[derive(Debug)]
pub(crate) struct Filler {
    split: SplitId,
    next: u64,
    value: [u8; VALUE],
    budget: Budget,
    watch: Stopwatch,
    lasts: Duration,
}

impl Filler {
    fn new(subtask: u32, seconds: u64) -> Self {
        Self {
            split: SplitId::new("memory", subtask),
            next: 0,
            value: [7; VALUE],
            budget: Budget::new(BUDGET),
            watch: Stopwatch::default(),
            lasts: Duration::from_secs(seconds),
        }
    }

    /// Appends a batch, or tells that the time is over.
    fn fill(&mut self, out: &mut BatchBuilder) -> bool {
        if self.watch.elapsed() >= self.lasts {
            return false;
        }
        let split = out.split(&self.split);
        if let Some(permit) = self.budget.try_acquire(BATCH as usize * VALUE) {
            out.hold(permit);
        }
        for offset in self.next..self.next + BATCH {
            self.value[..8].copy_from_slice(&offset.to_le_bytes());
            out.push(split, RawRecord { offset, value: Some(&self.value), ..RawRecord::default() });
        }
        self.next += BATCH;
        true
    }
}

/// Reads a number out of a record.
fn map(input: Input<'_, ()>) -> Result<u64, BoxError> {
    let value = input.value().ok_or("a record has no value")?;
    let first = value.first_chunk::<8>().ok_or("a value is too short")?;
    Ok(black_box(u64::from_le_bytes(*first)))
}

/// Adds numbers up, and throws them away.
#[derive(Debug, Default)]
struct Sum {
    sum: u64,
    records: u64,
}

impl Sum {
    fn add(&mut self, number: u64) {
        self.sum = black_box(self.sum.wrapping_add(number));
        self.records += 1;
    }
}

/// The loop that one would write without an engine.
pub(crate) fn plain(seconds: u64) -> Run {
    let mut filler = Filler::new(0, seconds);
    let mut sum = Sum::default();
    let mut alive = VecDeque::new();
    let watch = Stopwatch::default();
    loop {
        let mut builder = BatchBuilder::new();
        if !filler.fill(&mut builder) {
            return watch.stop(sum.records);
        }
        let (batch, positions) = builder.finish();
        black_box(positions);
        for record in batch.records() {
            // A record that is refused would go elsewhere; none is.
            if let Ok(number) = map(Input::new(&batch, record)) {
                sum.add(number);
            }
        }
        alive.push_back(batch);
        if alive.len() > ALIVE {
            alive.pop_front();
        }
    }
}

/// The filler as a source with one split a subtask.
#[derive(Debug)]
struct FillerSource {
    filler: Filler,
    is_assigned: bool,
}

impl Source for FillerSource {
    async fn open(&mut self, ctx: SourceContext) -> Result<(), SourceError> {
        self.filler.budget = ctx.budget;
        Ok(())
    }

    async fn poll(&mut self, out: &mut BatchBuilder) -> Result<Polled, SourceError> {
        if !self.is_assigned {
            self.is_assigned = true;
            return Ok(Polled::Assigned(assignment(&self.filler.split)));
        }
        Ok(if self.filler.fill(out) { Polled::Batch } else { Polled::End })
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

/// The one split of a subtask.
pub(crate) fn assignment(split: &SplitId) -> Assignment {
    let start = SplitStart { index: split.index, start: Position::at(0), earliest: Position::at(0) };
    let stream =
        StreamStart { stream: Arc::clone(&split.stream), id: StreamId("memory".into()), splits: vec![start] };
    Assignment { splits: vec![split.clone()], streams: vec![stream], ..Assignment::default() }
}

/// The sum as a sink.
#[derive(Debug, Default)]
pub(crate) struct NullSink {
    sum: Sum,
    /// All subtasks' records, told at the end.
    records: Arc<AtomicU64>,
}

impl IdempotentSink<u64> for NullSink {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        batch.records().iter().for_each(|record| self.sum.add(record.item));
        Ok(())
    }

    async fn close(&mut self) {
        self.records.fetch_add(self.sum.records, Ordering::Relaxed);
    }
}

/// The same through the engine, with one subtask.
pub(crate) async fn engine(seconds: u64, interval: Option<Duration>) -> Result<Run, Box<dyn Error>> {
    let records = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&records);
    let job = job(1, seconds)
        .map("number", map)
        .idempotent_sink("null", move |_| NullSink { records: Arc::clone(&told), ..NullSink::default() });
    let watch = Stopwatch::default();
    let settings = CheckpointSettings { interval, ..CheckpointSettings::default() };
    let mut job = job.checkpoints(settings).start(Store::open("memory:").await?)?;
    job.wait().await?;
    Ok(watch.stop(records.load(Ordering::Relaxed)))
}

/// Two subtasks, and an exchange by key between them.
pub(crate) async fn exchange(seconds: u64) -> Result<Run, Box<dyn Error>> {
    let records = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&records);
    let job = job(2, seconds)
        .map("number", map)
        .key_by("by number", |number| *number)
        .idempotent_sink("null", move |_| NullSink { records: Arc::clone(&told), ..NullSink::default() });
    let watch = Stopwatch::default();
    job.start(Store::open("memory:").await?)?.wait().await?;
    Ok(watch.stop(records.load(Ordering::Relaxed)))
}

fn job(parallelism: u32, seconds: u64) -> levada_engine::Flow<(), ()> {
    Job::new("bench")
        .parallelism(parallelism)
        .budget(Budget::new(BUDGET))
        .source("memory", move |subtask| FillerSource {
            filler: Filler::new(subtask, seconds),
            is_assigned: false,
        })
        .checkpointed()
}
