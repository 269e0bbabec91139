//! Our source against a tuned bare poll loop with the same client settings, both summing payload bytes and looking at no
//! headers; once as it is, and once with a watermark for the partition, made as a job makes it: a timestamp for each
//! record, a generator that allows an hour out of order, and a tick every 200 ms.
//!
//! One partition of 5 M rows of about 200 bytes, read again and again for at least 10 s a run. At the end of each pass
//! the client's next fetch waits at the broker for up to half a second; with fewer rows, that wait is what is measured.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use levada_benches::{load, measure};
use levada_core::time::{SourceTime, TimeAction, TimestampAssigner, WatermarkStrategy};
use levada_core::{
    Batch, BatchBuilder, Budget, Clock, Polled, Position, Source, SourceContext, SplitId, SystemClock,
    Timestamp,
};
use levada_kafka::source::{Headers, KafkaSource, KafkaSourceConfig};
use levada_testcontainers::Kafka;
use measure::{Run, Stopwatch};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

#[derive(Parser)]
struct Arguments {
    /// Rows in the topic.
    #[arg(long, default_value_t = 5_000_000)]
    rows: u64,
    /// Seconds that a run lasts at least.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Runs of each variant.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Runs one variant only: for the program's own use.
    #[arg(long, hide = true)]
    variant: Option<String>,
    #[arg(long, hide = true)]
    brokers: Option<String>,
}

const TOPIC: &str = "bench-source";
/// The bytes that may be in flight: the prefetch is a half of them in both variants.
const BUDGET: usize = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let (Some(variant), Some(brokers)) = (&arguments.variant, &arguments.brokers) {
        let run = match variant.as_str() {
            "levada" => runtime.block_on(levada(brokers, &arguments, None))?,
            "watermarks" => runtime.block_on(levada(brokers, &arguments, Some(Watermarks::new())))?,
            _ => bare(brokers, &arguments)?,
        };
        println!("{}", serde_json::to_string(&run)?);
        return Ok(());
    }

    let kafka = Kafka::builder().for_throughput().heap("1g").start()?;
    runtime.block_on(load::fill(kafka.bootstrap(), TOPIC, 1, arguments.rows))?;
    let passed_on = [
        "--rows",
        &arguments.rows.to_string(),
        "--seconds",
        &arguments.seconds.to_string(),
        "--brokers",
        kafka.bootstrap(),
    ]
    .map(str::to_owned);
    let runs = measure::alternate(&["levada", "watermarks", "bare"], arguments.rounds, &passed_on)?;
    let rate = |variant: &str| measure::median(&runs[variant], Run::rate);
    let cpu_ns = |variant: &str| measure::median(&runs[variant], Run::cpu_per_million) * 1000.0;
    // Beside the differences of whole runs, which are small and noisy: what the calls themselves took.
    let calls = measure::median(&runs["watermarks"], |run| run.part_ns);
    let (off, on) = (rate("levada") / rate("bare"), rate("watermarks") / rate("bare"));
    let thousandths = |ratio: f64| (ratio * 1000.0).round() / 1000.0;
    println!(
        "{}",
        serde_json::json!({
            "name": "source",
            "ratio": thousandths(off.min(on)),
            "ratios": {"levada": thousandths(off), "watermarks": thousandths(on)},
            "watermark_ns_per_record": {
                "wall": (1e9 / rate("watermarks") - 1e9 / rate("levada")).round(),
                "cpu": (cpu_ns("watermarks") - cpu_ns("levada")).round(),
                "calls": (calls * 10.0).round() / 10.0,
            },
            "levada": measure::summary(&runs["levada"]),
            "watermarks": measure::summary(&runs["watermarks"]),
            "bare": measure::summary(&runs["bare"]),
        })
    );
    Ok(())
}

/// Keeps time as a job does, between two polls.
struct Watermarks {
    strategy: WatermarkStrategy<()>,
    time: SourceTime<()>,
    assigner: TimestampAssigner<()>,
    last_tick: Timestamp,
    emitted: u64,
    /// Processor time of the calls.
    took: Duration,
}

impl Watermarks {
    fn new() -> Self {
        let strategy = WatermarkStrategy::bounded_out_of_orderness(Duration::from_secs(3600));
        let (time, assigner) = (SourceTime::new(strategy.clone()), strategy.assigner());
        Self { strategy, time, assigner, last_tick: Timestamp::MIN, emitted: 0, took: Duration::ZERO }
    }

    /// A new pass begins, and time with it: otherwise all of its records were late.
    fn begin_pass(&mut self, split: &SplitId) {
        self.time = SourceTime::new(self.strategy.clone());
        self.time.add(split.clone(), 0, SystemClock.now());
    }

    fn batch(&mut self, batch: &mut Batch<()>) -> Result<(), Box<dyn Error>> {
        let begun = measure::thread_cpu();
        let now = SystemClock.now();
        for record in batch.records_mut() {
            record.origin.timestamp = self.assigner.assign(&record.origin, &record.item)?;
        }
        let Self { time, emitted, .. } = self;
        let mut count = |action: &TimeAction<_>| *emitted += u64::from(matches!(action, TimeAction::Emit(_)));
        time.batch(batch.splits(), batch.records(), now, |_, action| count(&action));
        if now.since(self.last_tick) >= self.strategy.interval() {
            self.last_tick = now;
            self.time.tick(now).iter().for_each(count);
        }
        self.took += measure::thread_cpu() - begun;
        Ok(())
    }
}

async fn levada(
    brokers: &str,
    arguments: &Arguments,
    mut watermarks: Option<Watermarks>,
) -> Result<Run, Box<dyn Error>> {
    let mut source = KafkaSource::new(KafkaSourceConfig::new(brokers, [TOPIC]).headers(Headers::Skip))?;
    source.open(SourceContext { subtask: 0, parallelism: 1, budget: Budget::new(BUDGET) }).await?;
    let split = SplitId::new(TOPIC, 0);
    let mut watch = None;
    let (mut records, mut bytes, mut of_pass) = (0, 0, 0);
    loop {
        let mut out = BatchBuilder::new();
        match source.poll(&mut out).await? {
            Polled::Assigned(_) => {
                source.add(vec![(split.clone(), Position::at(0))])?;
                watermarks.iter_mut().for_each(|watermarks| watermarks.begin_pass(&split));
                watch = Some(Stopwatch::default());
            }
            Polled::Batch => {
                let (mut batch, _) = out.finish();
                if let Some(watermarks) = &mut watermarks {
                    watermarks.batch(&mut batch)?;
                }
                for record in batch.records() {
                    bytes += batch.value(&record.origin).map_or(0, <[u8]>::len);
                }
                records += batch.len() as u64;
                of_pass += batch.len() as u64;
            }
            _ => {}
        }
        let Some(watch) = watch.as_ref().filter(|_| of_pass >= arguments.rows) else { continue };
        if watch.elapsed() >= Duration::from_secs(arguments.seconds) {
            let mut run = watch.stop(records);
            eprintln!("{bytes} payload bytes");
            if let Some(watermarks) = &watermarks {
                let late = watermarks.time.late();
                run.part_ns = watermarks.took.as_nanos() as f64 / records as f64;
                assert!(watermarks.emitted > 0, "no watermark was made");
                eprintln!("{} watermarks, {late} records late", watermarks.emitted);
            }
            source.close().await;
            return Ok(run);
        }
        of_pass = 0;
        source.add(vec![(split.clone(), Position::at(0))])?;
        watermarks.iter_mut().for_each(|watermarks| watermarks.begin_pass(&split));
    }
}

fn bare(brokers: &str, arguments: &Arguments) -> Result<Run, Box<dyn Error>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("fetch.queue.backoff.ms", "2")
        .set("queued.max.messages.kbytes", (BUDGET / 2 / 1024).to_string())
        .set("queued.min.messages", "100000")
        .create()?;
    let from_the_start = || -> Result<(), Box<dyn Error>> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(TOPIC, 0, Offset::Offset(0))?;
        consumer.assign(&list)?;
        Ok(())
    };
    // As long as our source takes to find its splits, so that neither measures the connection.
    consumer.fetch_metadata(Some(TOPIC), Duration::from_secs(10))?;
    from_the_start()?;
    let watch = Stopwatch::default();
    let (mut records, mut bytes, mut of_pass) = (0, 0, 0);
    loop {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        bytes += message.payload().map_or(0, <[u8]>::len);
        records += 1;
        of_pass += 1;
        if of_pass < arguments.rows {
            continue;
        }
        if watch.elapsed() >= Duration::from_secs(arguments.seconds) {
            eprintln!("{bytes} payload bytes");
            return Ok(watch.stop(records));
        }
        of_pass = 0;
        drop(message);
        from_the_start()?;
    }
}
