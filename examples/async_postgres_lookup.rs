//! Rows of a Postgres table looked up on the way from numbers into files, many keys by one query.
//!
//! ```text
//! cargo run -p levada-examples --bin async_postgres_lookup -- postgres://USER:PASSWORD@HOST/DATABASE
//! ```
//!
//! Flights have a carrier's code, and get the carrier's name from a table. The step hands `PostgresLookup` up to 100 flights at a time.
//! That asks once for keys that are equal, and for all that are not by one `= ANY`. A flight whose carrier is not in the table goes
//! on without a name: a left join. A lookup that fails is no miss: it is tried again, and fails the job in the end.
//!
//! In checkpoints are the flights that were not written, looked up or not; after a crash they are looked up again, and the files
//! show each once. `levada-postgres` has `Enrichment` for joining whole rows; here the join is a line.

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use levada_core::Value;
use levada_core::async_io::{AsyncSettings, Batching, CallError, Called, RetryStrategy};
use levada_engine::Job;
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_examples::Numbers;
use levada_files::{FileSink, FileSinkConfig};
use levada_postgres::lookup::{CacheBound, CacheConfig, Found, LookupError};
use levada_postgres::quote::TableName;
use levada_postgres::{PostgresLookup, PostgresLookupConfig};
use tokio_postgres::NoTls;

const FLIGHTS: u64 = 1000;
const TABLE: &str = "
    create schema if not exists levada_example;
    drop table if exists levada_example.airlines;
    create table levada_example.airlines (code text primary key, name text not null);
    insert into levada_example.airlines values ('LH', 'Lufthansa'), ('TP', 'TAP Air Portugal'), ('AF', 'Air France')";
const CODES: [&str; 4] = ["LH", "TP", "AF", "XX"];

/// A flight as it is read: its carrier and number.
fn flight(number: u64) -> String {
    format!("{}{number}", CODES[number as usize % CODES.len()])
}

async fn fill(url: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(TABLE).await
}

async fn open(url: &str) -> Result<PostgresLookup, Box<dyn Error>> {
    let table = TableName::in_schema("levada_example", "airlines")?;
    let config = PostgresLookupConfig::by_table(url.parse()?, table, ["code"])
        .columns(["name"])
        .timeout(Duration::from_secs(2))
        // A changed name is seen after a minute at most, a new airline at once.
        .cache(CacheConfig::new(CacheBound::Rows(10_000)).after_write(Duration::from_secs(60)));
    Ok(PostgresLookup::open(config).await?)
}

/// Joins a flight with what its carrier's code has found, or says whose fault it is that nothing was.
fn joined(flight: &str, found: Result<Found, LookupError>) -> Called<String> {
    let found =
        found.map_err(|cause| CallError::new(cause.class(), "look the carrier up").caused_by(cause))?;
    Ok(match found.first().and_then(|row| row.get("name")) {
        Some(Value::Text(name)) => vec![format!("{flight},{}", name.as_str())],
        _ => vec![format!("{flight},")],
    })
}

async fn look_up(
    lookup: PostgresLookup,
    flights: Vec<Arc<String>>,
) -> Result<Vec<Called<String>>, CallError> {
    // Bound as parameters with the column's type.
    let keys: Vec<[Value; 1]> = flights.iter().map(|flight| [Value::Text(flight[..2].into())]).collect();
    let found = lookup.get_many(&keys).await;
    Ok(flights.iter().zip(found).map(|(flight, found)| joined(flight, found)).collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("which database? postgres://USER:PASSWORD@HOST/DATABASE")?;
    fill(&url).await?;
    let lookup = open(&url).await?;
    let folder = tempfile::tempdir()?;
    let files = FileSinkConfig::new(folder.path(), "flights").suffix(".csv");
    let settings = AsyncSettings::new()
        .ordered()
        .capacity(4)
        .timeout(Duration::from_secs(5))
        .retry(RetryStrategy::Fixed { delay: Duration::from_millis(100), retries: 10 });
    // A hundred a query, or as many as come while the first one waits for others.
    let batching = Batching { delay: Duration::from_millis(20), ..Batching::new(100) };
    let asks = lookup.clone();
    let job = Job::new("flights")
        .source_function("numbers", |_| Numbers::up_to(FLIGHTS).watermark_every(100))
        .map("flight", |input| Ok(flight(*input.item())))
        .async_map_many("carrier", move |flights| look_up(asks.clone(), flights), settings, batching)
        .two_phase_sink("files", TwoPhaseOptions::default(), move |_| FileSink::new(files.clone()));
    job.run(Store::open("memory:").await?).await?;

    let mut names: Vec<_> =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    names.retain(|name| name.is_file());
    names.sort();
    for name in names {
        print!("{}", fs::read_to_string(name)?);
    }
    let stats = lookup.stats();
    println!("{} keys, {} queries", stats.keys, stats.queries);
    Ok(())
}
