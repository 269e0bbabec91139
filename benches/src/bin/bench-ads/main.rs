//! The advertising benchmark: ad events become rows of views with their campaigns, exactly once.
//!
//! ```text
//!  topic of views, clicks, purchases ─▶ decode ─▶ views ─▶ campaign of the ad, from Postgres ─▶ upsert into Postgres
//! ```
//!
//! Four partitions, two subtasks. A third of the events are views, and one view in a hundred is of an ad without a campaign:
//! it is dropped. There are 1,000 ads in 100 campaigns. `batched` asks Postgres for every view, many in a query; `cached`
//! keeps the answers. Records a second are events of a full topic. Latency is looked at apart from it, while events come at a
//! steady rate: from the stamp that an event gets when it is produced to the commit of its row, as Postgres notes it, without
//! the first second. Commits come as the bridge's defaults have them, every 200 ms. After each run the rows are counted.

mod events;
mod job;
mod table;

use std::error::Error;
use std::process;

use clap::Parser;
use levada::cli::Until;
use levada_benches::{load, measure};
use levada_testcontainers::Kafka;
use measure::{Run, Stopwatch, rounded, set};

use crate::job::Lookup;

pub(crate) type Failure = Box<dyn Error>;

#[derive(Parser)]
pub(crate) struct Arguments {
    /// Seconds that events come at the steady rate; LEVADA_BENCH_SECONDS, or 15. The full topic has 200,000 events for each.
    #[arg(long, default_value_t = set("LEVADA_BENCH_SECONDS", 15))]
    seconds: u64,
    /// Events a second of the steady rate.
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Runs of each variant; LEVADA_BENCH_ROUNDS, or 5.
    #[arg(long, default_value_t = set("LEVADA_BENCH_ROUNDS", 5))]
    rounds: usize,
    /// Runs one variant only: for the program's own use.
    #[arg(long, hide = true)]
    variant: Option<String>,
    #[arg(long, hide = true, default_value = "")]
    brokers: String,
    #[arg(long, hide = true, default_value = "")]
    postgres: String,
}

impl Arguments {
    fn events(&self) -> u64 {
        200_000 * self.seconds
    }
}

/// The topic that is full before anything runs.
const FULL: &str = "events";

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let run = match arguments.variant.as_deref() {
        Some("batched") => runtime.block_on(full(&arguments, Lookup::Batched))?,
        Some("cached") => runtime.block_on(full(&arguments, Lookup::Cached))?,
        Some("batched_steady") => runtime.block_on(steady(&arguments, Lookup::Batched))?,
        Some("cached_steady") => runtime.block_on(steady(&arguments, Lookup::Cached))?,
        Some(other) => return Err(format!("there is no variant {other}").into()),
        None => return compare(&arguments, &runtime),
    };
    println!("{}", serde_json::to_string(&run)?);
    Ok(())
}

fn compare(arguments: &Arguments, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let kafka = Kafka::builder().for_throughput().heap("1g").start()?;
    let postgres = table::start()?;
    runtime.block_on(events::fill(kafka.bootstrap(), FULL, arguments.events()))?;
    let (seconds, rate) = (arguments.seconds.to_string(), arguments.rate.to_string());
    let passed_on = [
        "--seconds",
        &seconds,
        "--rate",
        &rate,
        "--brokers",
        kafka.bootstrap(),
        "--postgres",
        postgres.url(),
    ]
    .map(str::to_owned);
    let variants = ["batched", "cached", "batched_steady", "cached_steady"];
    let runs = measure::alternate(&variants, arguments.rounds, &passed_on)?;
    let summary = |full: &str, steady: &str| {
        let mut summary = measure::summary(&runs[full]);
        summary["event_to_row_ms"] = measure::quantiles(&runs[steady], |run| &run.latency_ms).into();
        summary
    };
    let rate = |variant: &str| measure::median(&runs[variant], Run::rate);
    println!(
        "{}",
        serde_json::json!({
            "name": "ads",
            "batched": summary("batched", "batched_steady"),
            "cached": summary("cached", "cached_steady"),
            "cached_of_batched": rounded(rate("cached") / rate("batched")),
            "steady_events_per_s": arguments.rate,
        })
    );
    Ok(())
}

/// Reads all that is in the full topic.
async fn full(arguments: &Arguments, lookup: Lookup) -> Result<Run, Failure> {
    table::reset(arguments).await?;
    let mut job = job::start(arguments, FULL, lookup, Some(Until::Now))?;
    job.progress().wait_for(|progress| !progress.started_at.is_empty()).await?;
    let watch = Stopwatch::default();
    let report = job.wait().await?;
    let run = watch.stop(report.balance.tally.read);
    assert_eq!(run.records, arguments.events(), "every event is read");
    assert_eq!(report.balance.committed.written, events::rows(run.records), "each row is written once");
    table::check(arguments, run.records).await?;
    Ok(run)
}

/// Reads along while events come at a steady rate.
async fn steady(arguments: &Arguments, lookup: Lookup) -> Result<Run, Failure> {
    table::reset(arguments).await?;
    // In the first second clients and connections come up: it is not looked at.
    let (topic, events) = (format!("events-{}", process::id()), arguments.rate * (1 + arguments.seconds));
    load::create(&arguments.brokers, &topic, events::PARTITIONS).await?;
    let mut job = job::start(arguments, &topic, lookup, None)?;
    let mut progress = job.progress();
    progress.wait_for(|progress| progress.started_at.len() == events::PARTITIONS as usize).await?;
    let watch = Stopwatch::default();
    events::produce_at(&arguments.brokers, &topic, arguments.rate, events).await?;
    progress.wait_for(|progress| progress.balance.tally.read == events).await?;
    let mut run = watch.stop(events);
    job.stop();
    let report = job.wait().await?;
    assert_eq!(report.balance.committed.written, events::rows(events), "each row is written once");
    table::check(arguments, events).await?;
    run.latency_ms = table::latencies(arguments, arguments.rate).await?;
    Ok(run)
}
