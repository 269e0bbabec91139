//! Replays real flights into a Kafka topic: `replay-flights --brokers HOST:PORT --topic flights FLIGHTS.csv.gz`.
//!
//! The topic is created if it is missing; a flight's key decides its partition.

use std::error::Error;
use std::path::PathBuf;

use clap::Parser;
use levada_examples::{FlightRecord, Replayed, flights, replay};

#[derive(Parser)]
struct Arguments {
    /// The cluster, `host:port`.
    #[arg(long)]
    brokers: String,
    /// The topic to write to.
    #[arg(long)]
    topic: String,
    /// The partitions of the topic, if it is created.
    #[arg(long, default_value_t = 4)]
    partitions: i32,
    /// Flights as gzipped CSV.
    file: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { brokers, topic, partitions, file } = Arguments::parse();
    let now = |FlightRecord { key, value }| Replayed { key, value, timestamp: None };
    let records: Vec<Replayed> = flights(&file)?.into_iter().map(now).collect();
    let written = replay(&brokers, &topic, partitions, &records).await?;
    println!("{written} flights are in topic {topic}");
    Ok(())
}
