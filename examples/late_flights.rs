//! Real flights that are late, as records that are late: a watermark for each partition, and one for all.
//!
//! ```text
//! cargo run -p levada-testcontainers -- run -- cargo run -p levada-examples --features kafka --bin late_flights
//! ```
//!
//! Each flight of January 2013 is written when it has landed, under its airport and carrier; its *event time* is when it
//! should have landed. So its record is out of order by the delay. The watermark allows an hour, and a record behind it is late.
//!
//! A late airport makes its own partition late. Where each partition has a watermark of its own, it is held against its
//! like. Where one watermark is made of all of them, whoever is on time elsewhere makes it late, and the number is larger.
//! In Kafka, a topic of one partition is that mix in the order of landing, the same in each run.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use levada_core::time::{TimestampFrom, WatermarkStrategy, WithoutTimestamp};
use levada_core::{BoxError, Timestamp};
use levada_engine::store::Store;
use levada_engine::{Input, Job};
use levada_examples::{Replayed, flights, replay};
use levada_kafka::{KafkaSource, KafkaSourceConfig, StopAt};
use serde_json::Value;

const JANUARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/flights-2013-01.csv.gz");
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// When a flight has landed and when it should have. One that never did, because it was cancelled or diverted, is known of
/// at its scheduled departure, and has no event time.
fn landing(flight: &Value) -> Option<(Timestamp, Option<Timestamp>)> {
    let minutes = |field: &str| flight[field].as_i64().map(|minutes| minutes * MINUTE);
    let departure = utc(flight["time_hour"].as_str()?)? + minutes("sched_dep_time")? % (100 * MINUTE);
    let (Some(out), Some(flown), Some(late)) =
        (minutes("dep_delay"), minutes("air_time"), minutes("arr_delay"))
    else {
        return Some((Timestamp(departure), None));
    };
    let landed = departure + out + flown;
    Some((Timestamp(landed), Some(Timestamp(landed - late))))
}

/// Reads a full hour like `2013-01-31T10:00:00Z`, up to the end of February: January's last evening is February in UTC.
fn utc(text: &str) -> Option<i64> {
    let number = |digits: std::ops::Range<usize>| text.get(digits)?.parse::<i64>().ok();
    let days = (number(5..7)? - 1) * 31 + number(8..10)? - 1;
    Some(1_356_998_400_000 + (days * 24 + number(11..13)?) * HOUR)
}

/// Returns the flights in the order in which they have landed; in the same minute, in that of the file.
fn by_arrival() -> Result<Vec<Replayed>, Box<dyn Error>> {
    let mut records = Vec::new();
    for flight in flights(Path::new(JANUARY))? {
        let fields: Value = serde_json::from_str(&flight.value)?;
        let (Timestamp(landed), _) = landing(&fields).ok_or("a flight without a schedule")?;
        let part = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
        let key = format!("{}-{}", part("origin"), part("carrier"));
        records.push(Replayed { key, value: flight.value, timestamp: Some(landed) });
    }
    records.sort_by_key(|record| record.timestamp);
    Ok(records)
}

/// A flight as the job sees it.
struct Landed {
    partition: u32,
    planned: Option<Timestamp>,
}

fn decode(input: &Input<'_, ()>) -> Result<Landed, BoxError> {
    let (_, planned) =
        landing(&serde_json::from_slice(input.value().ok_or("no value")?)?).ok_or("no schedule")?;
    Ok(Landed { partition: input.split().index, planned })
}

/// A bound of an hour, as `bounded_out_of_orderness` has it, but said behind each record instead of five times a second:
/// then what is late depends on the order within the partition alone, and not on how fast it is read.
fn within_an_hour() -> WatermarkStrategy<Landed> {
    WatermarkStrategy::punctuated(|_, Timestamp(newest)| Some(Timestamp(newest - HOUR - 1)))
        // Those without an event time take the time of their Kafka record, and are counted.
        .timestamps(TimestampFrom::field(|flight: &Landed| flight.planned), WithoutTimestamp::TakeOrigin)
}

/// Flights of each partition: how many, and how many of them late.
type Tally = Arc<Mutex<BTreeMap<u32, (u64, u64)>>>;

fn count(tally: &Tally, flight: &Landed, late: u64) {
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let (flights, late_flights) = tally.entry(flight.partition).or_default();
    (*flights, *late_flights) = (*flights + 1, *late_flights + late);
}

/// Reads a topic, each partition in a subtask of its own; returns the tally, and how many had no event time.
async fn read(brokers: &str, topic: &str, partitions: u32) -> Result<(Tally, u64), Box<dyn Error>> {
    let config = KafkaSourceConfig::new(brokers, [topic]).stop_at(StopAt::LatestAtStart);
    KafkaSource::new(config.clone())?;
    let tally = Tally::default();
    let (on_time, late) = (Arc::clone(&tally), Arc::clone(&tally));
    let mut job = Job::new("late flights")
        .parallelism(partitions)
        .source("flights", move |_| KafkaSource::new(config.clone()).expect("it was looked at above"))
        .map("decode", |input| decode(&input))
        .watermarks("landing", within_an_hour())
        .checkpointed()
        .late_side_output("late", move |branch| {
            branch.for_each("count late", move |flight, _| {
                count(&late, &flight.item, 1);
                Ok(())
            })
        })
        .for_each("count", move |flight, _| {
            count(&on_time, &flight.item, 0);
            Ok(())
        })
        .start(Store::open("memory:").await?)?;
    job.wait().await?;
    let without = job.time().snapshot().sources.iter().map(|source| source.missing.taken_from_origin).sum();
    Ok((tally, without))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let brokers = std::env::var("LEVADA_KAFKA_BOOTSTRAP").map_err(|_| "LEVADA_KAFKA_BOOTSTRAP is not set")?;
    let prefix = std::env::args().nth(1).unwrap_or_else(|| "landings".to_owned());
    let records = by_arrival()?;
    let (mut printed, mut without) = (Vec::new(), 0);
    for (partitions, name) in [(8, "a watermark for each partition"), (1, "one watermark for all of them")] {
        let topic = format!("{prefix}-{partitions}");
        replay(&brokers, &topic, partitions, &records).await?;
        let tally;
        (tally, without) = read(&brokers, &topic, partitions.unsigned_abs()).await?;
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        if partitions > 1 {
            for (partition, (flights, late)) in &*tally {
                println!("partition {partition}: {flights} flights, {late} late");
            }
        }
        let sum = |of: fn(&(u64, u64)) -> u64| tally.values().map(of).sum::<u64>();
        printed.push(format!("{name}: {} of {} flights are late", sum(|of| of.1), sum(|of| of.0)));
    }
    printed.iter().for_each(|line| println!("{line}"));
    println!("without a time to land: {without}");
    Ok(())
}
