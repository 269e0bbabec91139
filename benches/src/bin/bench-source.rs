//! Our source against a tuned bare poll loop with the same client settings, both summing payload bytes and looking at no
//! headers.
//!
//! One partition of 5 M rows of about 200 bytes, read again and again for at least 10 s a run. At the end of each pass
//! the client's next fetch waits at the broker for up to half a second; with fewer rows, that wait is what is measured.

use std::error::Error;
use std::time::Duration;

use clap::Parser;
use levada_benches::{load, measure};
use levada_core::{BatchBuilder, Budget, Polled, Position, Source, SourceContext, SplitId};
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
            "levada" => runtime.block_on(levada(brokers, &arguments))?,
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
    let runs = measure::alternate(&["levada", "bare"], arguments.rounds, &passed_on)?;
    let ratio = measure::median(&runs["levada"], Run::rate) / measure::median(&runs["bare"], Run::rate);
    println!(
        "{}",
        serde_json::json!({
            "name": "source",
            "ratio": (ratio * 1000.0).round() / 1000.0,
            "levada": measure::summary(&runs["levada"]),
            "bare": measure::summary(&runs["bare"]),
        })
    );
    Ok(())
}

async fn levada(brokers: &str, arguments: &Arguments) -> Result<Run, Box<dyn Error>> {
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
                watch = Some(Stopwatch::default());
            }
            Polled::Batch => {
                let (batch, _) = out.finish();
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
            let run = watch.stop(records);
            eprintln!("{bytes} payload bytes");
            source.close().await;
            return Ok(run);
        }
        of_pass = 0;
        source.add(vec![(split.clone(), Position::at(0))])?;
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
