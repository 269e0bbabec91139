//! The ad events: what they say, and which of them become rows.

use std::time::Duration;

use levada_benches::load::{self, LoadProducer, WITHIN};
use levada_core::{Clock as _, SystemClock};
use rdkafka::producer::Producer as _;
use tokio::time::{Instant, interval};

use crate::Failure;

pub(crate) const PARTITIONS: i32 = 4;
/// Ads that belong to a campaign, ten to each.
pub(crate) const ADS: u64 = 1_000;
/// Ads that belong to none: about one event in a hundred is of one of them.
const STRAY_ADS: u64 = 10;

fn ad(number: u64) -> u64 {
    number * 7919 % (ADS + STRAY_ADS)
}

fn kind(number: u64) -> &'static str {
    ["view", "click", "purchase"][(number % 3) as usize]
}

/// Counts the views with a campaign among the first `events` events.
pub(crate) fn rows(events: u64) -> u64 {
    (0..events).filter(|&number| kind(number) == "view" && ad(number) < ADS).count() as u64
}

/// Returns event `number` as JSON, stamped with the time of now.
fn event(number: u64) -> String {
    format!(
        "{{\"event\":{number},\"visitor\":\"visitor-{:016}\",\"page\":\"page-{:016}\",\"ad\":{},\"type\":\"{}\",\
         \"produced\":{}}}",
        number * 104_729 % 1_000_000,
        number * 1_299_709 % 100_000,
        ad(number),
        kind(number),
        SystemClock.now().0
    )
}

fn send(producer: &LoadProducer, topic: &str, number: u64) -> Result<(), Failure> {
    let partition = (number % PARTITIONS as u64) as i32;
    Ok(load::send(producer, topic, partition, &number.to_string(), &event(number))?)
}

/// Fills a new topic as fast as it goes.
pub(crate) async fn fill(brokers: &str, topic: &str, events: u64) -> Result<(), Failure> {
    load::create(brokers, topic, PARTITIONS).await?;
    let producer = load::producer(brokers, "50")?;
    for number in 0..events {
        send(&producer, topic, number)?;
    }
    Ok(producer.flush(WITHIN)?)
}

/// Produces so many events a second until there are `events`.
pub(crate) async fn produce_at(brokers: &str, topic: &str, rate: u64, events: u64) -> Result<(), Failure> {
    let producer = load::producer(brokers, "5")?;
    let mut ticks = interval(Duration::from_millis(5));
    let (begun, mut sent) = (Instant::now(), 0);
    while sent < events {
        ticks.tick().await;
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        for number in sent..due.min(events) {
            send(&producer, topic, number)?;
        }
        sent = due.min(events);
        producer.poll(Duration::ZERO);
    }
    Ok(producer.flush(WITHIN)?)
}
