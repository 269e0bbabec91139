//! What keeping time costs: a tick, by how many splits there are and how many of them are idle, and a record.
//!
//! The ticks are those of one source subtask whose watermark grows with every tick, first by themselves, then in a job, where
//! a tick also wakes a task, polls the source anew and is noted for whoever looks. Nobody reads Kafka. The ratio says that
//! idle splits cost nothing: a tick with one active split of ten against one with one active split of 500.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::pending;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use levada_benches::measure::Stopwatch;
use levada_core::batch::RawRecord;
use levada_core::time::{SourceTime, SplitEvent, WatermarkGenerator, WatermarkStrategy};
use levada_core::{
    Assignment, Batch, BatchBuilder, Polled, Position, Source, SourceContext, SourceError, SplitId,
    SplitStart, StreamId, StreamStart, Timestamp, TimestampKind,
};
use levada_engine::Job;
use levada_engine::store::Store;
use tokio::runtime::Builder;

#[derive(Parser)]
struct Arguments {
    /// Ticks of a run.
    #[arg(long, default_value_t = 100_000)]
    ticks: u32,
    /// Batches of a run.
    #[arg(long, default_value_t = 2_000)]
    batches: u32,
    /// Seconds that a job runs.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Runs of each variant.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Splits of a subtask, and those of them that are idle.
#[derive(Debug, Clone, Copy)]
struct Splits {
    all: u32,
    idle: u32,
}

const CASES: [(&str, Splits); 4] = [
    ("500_active", Splits { all: 500, idle: 0 }),
    ("500_with_499_idle", Splits { all: 500, idle: 499 }),
    ("10_active", Splits { all: 10, idle: 0 }),
    ("10_with_9_idle", Splits { all: 10, idle: 9 }),
];

/// From one tick of a job to the next: as short as can be, so that there are many.
const INTERVAL: Duration = Duration::from_millis(1);
/// Records of a batch, as the Kafka source makes them.
const BATCH: u64 = 4096;

/// A watermark that grows with every tick, and a count of them.
#[derive(Debug)]
struct Growing(Arc<AtomicU64>);

impl<T> WatermarkGenerator<T> for Growing {
    fn on_periodic(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(now)
    }
}

fn growing<T: 'static>(asked: &Arc<AtomicU64>) -> WatermarkStrategy<T> {
    let asked = Arc::clone(asked);
    WatermarkStrategy::custom(move || Box::new(Growing(Arc::clone(&asked))))
}

fn split(index: u32) -> SplitId {
    SplitId::new("memory", index)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut figures: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..arguments.rounds {
        for (case, splits) in CASES {
            let tick = tick(splits, arguments.ticks);
            let in_job = tick_in_job(splits, arguments.seconds)?;
            eprintln!(
                "round {round}: {case:<17} {tick:>7.0} ns a tick, {in_job:>7.0} ns of processor time in a job"
            );
            figures.entry(("tick_ns", case)).or_default().push(tick);
            figures.entry(("tick_in_job_cpu_ns", case)).or_default().push(in_job);
        }
        for (case, splits) in [("1_split", 1), ("500_splits", 500)] {
            let record = record(splits, arguments.batches);
            eprintln!("round {round}: {case:<17} {record:>7.1} ns a record");
            figures.entry(("record_ns", case)).or_default().push(record);
        }
    }
    print(figures);
    Ok(())
}

fn print(figures: BTreeMap<(&str, &str), Vec<f64>>) {
    let mut medians: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
    for ((figure, case), mut runs) in figures {
        runs.sort_by(f64::total_cmp);
        medians.entry(figure).or_default().insert(case, (runs[runs.len() / 2] * 10.0).round() / 10.0);
    }
    let ticks = &medians["tick_ns"];
    let ratio = ticks["10_with_9_idle"] / ticks["500_with_499_idle"];
    let mut line = serde_json::json!({ "name": "time", "ratio": (ratio * 1000.0).round() / 1000.0 });
    for (figure, cases) in medians {
        line[figure] = serde_json::json!(cases);
    }
    println!("{line}");
}

/// Returns the nanoseconds of a tick.
fn tick(splits: Splits, ticks: u32) -> f64 {
    let asked = Arc::default();
    let mut time: SourceTime<()> = SourceTime::new(growing(&asked));
    for index in 0..splits.all {
        time.add(split(index), 0, Timestamp(0));
    }
    for index in 0..splits.idle {
        time.event(&split(index), SplitEvent::MarkIdle, Timestamp(0));
    }
    let watch = Stopwatch::default();
    for now in 1..=ticks {
        black_box(time.tick(Timestamp(i64::from(now))));
    }
    let elapsed = watch.elapsed();
    assert_eq!(asked.load(Ordering::Relaxed), u64::from(ticks) * u64::from(splits.all - splits.idle));
    elapsed.as_nanos() as f64 / f64::from(ticks)
}

/// Returns the nanoseconds that a record costs in whose batch there are records of so many splits, one after the other.
fn record(splits: u32, batches: u32) -> f64 {
    let mut time: SourceTime<()> =
        SourceTime::new(WatermarkStrategy::bounded_out_of_orderness(Duration::from_secs(1)));
    for index in 0..splits {
        time.add(split(index), 0, Timestamp(0));
    }
    let batch = batch(splits);
    let watch = Stopwatch::default();
    for now in 0..batches {
        let now = Timestamp(i64::from(now));
        time.batch(batch.splits(), batch.records(), now, |_, action| drop(black_box(action)));
    }
    watch.elapsed().as_nanos() as f64 / (f64::from(batches) * BATCH as f64)
}

fn batch(splits: u32) -> Batch<()> {
    let mut builder = BatchBuilder::new();
    for number in 0..BATCH {
        let split = builder.split(&split((number % u64::from(splits)) as u32));
        let (timestamp, timestamp_kind) = (Timestamp(number as i64), TimestampKind::Create);
        let offset = number / u64::from(splits);
        builder.push(split, RawRecord { offset, timestamp, timestamp_kind, ..RawRecord::default() });
    }
    builder.finish().0
}

/// Returns the nanoseconds of processor time of a tick of a job that does nothing else.
fn tick_in_job(splits: Splits, seconds: u64) -> Result<f64, Box<dyn Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let asked: Arc<AtomicU64> = Arc::default();
    let strategy = growing(&asked).every(INTERVAL)?;
    let asked_of_each = || asked.load(Ordering::Relaxed) / u64::from(splits.all - splits.idle);
    runtime.block_on(async {
        let job = Job::new("time").source("quiet", move |_| Quiet { splits, told: 0 }).checkpointed();
        let job = job.watermarks("time", strategy).for_each("nobody", |_, _| Ok(()));
        let mut job = job.start(Store::open("memory:").await?)?;
        let mut looks = tokio::time::interval(Duration::from_millis(100));
        let is_settled = |snapshot: &levada_engine::TimeSnapshot| {
            snapshot.sources.iter().any(|source| {
                let idle = source.splits.iter().filter(|split| split.status.is_idle()).count();
                (source.splits.len(), idle) == (splits.all as usize, splits.idle as usize)
            })
        };
        while !is_settled(&job.time().snapshot()) {
            looks.tick().await;
        }
        let (before, watch) = (asked_of_each(), Stopwatch::default());
        while watch.elapsed() < Duration::from_secs(seconds) {
            looks.tick().await;
        }
        let run = watch.stop(asked_of_each() - before);
        job.cancel();
        job.wait().await.err();
        Ok(run.cpu_seconds * 1e9 / run.records as f64)
    })
}

/// Splits that nothing comes from. Some say that they are idle.
#[derive(Debug)]
struct Quiet {
    splits: Splits,
    told: u32,
}

impl Source for Quiet {
    async fn open(&mut self, _: SourceContext) -> Result<(), SourceError> {
        Ok(())
    }

    async fn poll(&mut self, _: &mut BatchBuilder) -> Result<Polled, SourceError> {
        self.told += 1;
        let Splits { all, idle } = self.splits;
        match self.told {
            1 => {
                let start = |index| SplitStart { index, start: Position::at(0), earliest: Position::at(0) };
                let (stream, id) = ("memory".into(), StreamId("memory".into()));
                let streams = vec![StreamStart { stream, id, splits: (0..all).map(start).collect() }];
                let splits = (0..all).map(split).collect();
                Ok(Polled::Assigned(Assignment { splits, streams, ..Assignment::default() }))
            }
            2 => Ok(Polled::News((0..idle).map(|index| (split(index), SplitEvent::MarkIdle)).collect())),
            _ => pending().await,
        }
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
