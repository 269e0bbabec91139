//! Our sinks against an idempotent producer without transactions.
//!
//! Keyed rows of about 200 bytes go to four partitions of one broker, `acks=all`, with the same linger and the same bytes in
//! flight. `bare` fills batches, hands their records to a librdkafka producer and counts its reports. The others are jobs: a
//! source that fills the same batches, and a sink that writes at least once, or exactly once by checkpoint, with a
//! checkpoint every ten seconds or every second. A run lasts until the last record is acknowledged, and committed, and the
//! clients have ended.
//!
//! The variants of ten seconds enter the ratio times 0.8 ÷ 0.9, so that one bar, 0.8, holds for all. Beside it: how long commits
//! take at the coordinator, and how long checkpoints take from their barrier to their entry in the store.

mod bare;
mod jobs;
mod load;
mod topic;

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use levada_benches::measure;
use levada_testcontainers::Kafka;
use measure::{Run, rounded, set};

#[derive(Parser)]
struct Arguments {
    /// Seconds that records are written in a run; LEVADA_BENCH_SECONDS, or 15. With ten or less there is one transaction in
    /// the variants of ten seconds.
    #[arg(long, default_value_t = set("LEVADA_BENCH_SECONDS", 15))]
    seconds: u64,
    /// Runs of each variant; LEVADA_BENCH_ROUNDS, or 5.
    #[arg(long, default_value_t = set("LEVADA_BENCH_ROUNDS", 5))]
    rounds: usize,
    /// Runs one variant only: for the program's own use.
    #[arg(long, hide = true)]
    variant: Option<String>,
    #[arg(long, hide = true, default_value = "")]
    brokers: String,
}

/// Each of ours: what a user would call it, its guarantee, and from checkpoint to checkpoint.
const OURS: [(&str, jobs::Sink, Duration); 4] = [
    ("at-least-once-10s", jobs::Sink::AtLeastOnce, Duration::from_secs(10)),
    ("at-least-once-1s", jobs::Sink::AtLeastOnce, Duration::from_secs(1)),
    ("two-phase-10s", jobs::Sink::TwoPhase, Duration::from_secs(10)),
    ("two-phase-1s", jobs::Sink::TwoPhase, Duration::from_secs(1)),
];

/// The bar of ten seconds over the bar of one second.
const BAR_OF_TEN: f64 = 0.9 / 0.8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match &arguments.variant {
        Some(variant) => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            println!("{}", serde_json::to_string(&runtime.block_on(run(variant, &arguments))?)?);
            Ok(())
        }
        None => compare(&arguments),
    }
}

/// Each run has a topic of its own, which is deleted behind it: the disk holds one run, and the page cache, too.
async fn run(variant: &str, arguments: &Arguments) -> Result<Run, Box<dyn Error>> {
    let (brokers, lasts) = (&arguments.brokers, Duration::from_secs(arguments.seconds));
    let topic = topic::make(brokers, variant).await?;
    let ours = OURS.iter().find(|(name, ..)| *name == variant);
    let run = match ours {
        Some((_, sink, interval)) => jobs::run(*sink, *interval, brokers, &topic, lasts).await?,
        None => bare::run(brokers, &topic, lasts)?,
    };
    topic::check_and_delete(brokers, &topic, run.records).await?;
    Ok(run)
}

fn compare(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let kafka = Kafka::builder().for_throughput().heap("1g").start()?;
    let passed_on = ["--seconds", &arguments.seconds.to_string(), "--brokers", kafka.bootstrap()];
    let passed_on = passed_on.map(str::to_owned);
    let variants = ["two-phase-1s", "bare", "two-phase-10s", "at-least-once-1s", "at-least-once-10s"];
    let runs = measure::alternate(&variants, arguments.rounds, &passed_on)?;
    let rate = |variant: &str| measure::median(&runs[variant], Run::rate);

    let mut ratio = f64::INFINITY;
    let mut report = serde_json::json!({"name": "kafka-sink", "bare": measure::summary(&runs["bare"])});
    for (variant, _, interval) in OURS {
        let own = rate(variant) / rate("bare");
        let bar = if interval > Duration::from_secs(1) { BAR_OF_TEN } else { 1.0 };
        ratio = ratio.min(own / bar);
        let mut summary = measure::summary(&runs[variant]);
        summary["ratio"] = rounded(own).into();
        let commits = measure::quantiles(&runs[variant], |run| &run.commit_ms);
        let checkpoints = measure::quantiles(&runs[variant], |run| &run.durable_ms);
        for (name, figures) in [("commit_ms", commits), ("barrier_to_durable_ms", checkpoints)] {
            if let Some(figures) = figures {
                summary[name] = figures;
            }
        }
        report[variant] = summary;
    }
    report["ratio"] = rounded(ratio).into();
    println!("{report}");
    Ok(())
}
