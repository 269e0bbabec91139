//! A sink for a system without an upsert: UPDATE, and INSERT if there was nothing to update. Here SQLite.
//!
//! ```text
//! cargo run -p levada-examples --bin idempotent_upsert
//! ```
//!
//! A reading has a station, an hour and a value; station and hour are its key, so a repetition finds its own row. The
//! program fails twice on purpose, in the midst of writing. What follows is written again from the last checkpoint on:
//! for that while a reader sees older values, and at the end the table is what it would be without a failure.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, ErrorChain, ErrorClass, SinkContext, SinkError};
use levada_engine::Job;
use levada_engine::store::Store;
use levada_examples::Numbers;
use rusqlite::{Connection, TransactionBehavior};
use tokio::task::spawn_blocking;

const NEVER: i64 = i64::MAX;

#[derive(Debug, Clone, Copy)]
struct Reading {
    station: i64,
    hour: i64,
    value: i64,
}

/// Makes a reading of a number: two stations, four readings an hour each, the last of which counts.
fn reading(number: i64) -> Reading {
    Reading { station: number % 2, hour: number / 8, value: number }
}

#[derive(Debug)]
struct UpsertSink {
    database: PathBuf,
    /// The value at which this sink fails, to show what comes of it.
    fails_at: i64,
}

impl IdempotentSink<Reading> for UpsertSink {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    /// Returns when the batch is durable, so there is nothing left for a flush.
    async fn upsert(&mut self, batch: Batch<Reading>, _: &WriteContext) -> Result<(), SinkError> {
        let readings: Vec<Reading> = batch.records().iter().map(|record| record.item).collect();
        if readings.iter().any(|reading| reading.value == self.fails_at) {
            return Err(SinkError::new(ErrorClass::Fatal, "failed on purpose"));
        }
        let database = self.database.clone();
        // The client blocks: its calls have no place on a thread of the runtime.
        let written = spawn_blocking(move || write(&database, &readings)).await;
        let written =
            written.map_err(|cause| SinkError::new(ErrorClass::Fatal, "write readings").caused_by(cause))?;
        written.map_err(|cause| SinkError::new(ErrorClass::Retry, "write readings").caused_by(cause))
    }
}

fn write(database: &Path, readings: &[Reading]) -> rusqlite::Result<()> {
    let mut connection = Connection::open(database)?;
    // Nobody else may insert the key between our UPDATE and our INSERT.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for Reading { station, hour, value } in readings {
        let row = (station, hour, value);
        let update = "update readings set value = ?3 where station = ?1 and hour = ?2";
        if transaction.execute(update, row)? == 0 {
            transaction.execute("insert into readings (station, hour, value) values (?1, ?2, ?3)", row)?;
        }
    }
    transaction.commit()
}

/// Reads the table as any client would: value by station and hour.
fn table(database: &Path) -> rusqlite::Result<BTreeMap<(i64, i64), i64>> {
    let connection = Connection::open(database)?;
    let mut query = connection.prepare("select station, hour, value from readings")?;
    query.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?.collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("readings.sqlite");
    let create =
        "create table readings (station integer, hour integer, value integer, primary key (station, hour))";
    Connection::open(&database)?.execute(create, [])?;
    let store = Store::open("memory:").await?;
    let lives = [
        ("readings 0 to 7, then a checkpoint", 8, NEVER),
        ("on to 14, then a failure", 24, 15),
        ("again from 8 to 9, then a failure: older values are back", 24, 10),
        ("again from 8 to the end", 24, NEVER),
    ];
    for (what, up_to, fails_at) in lives {
        let path = database.clone();
        let job = Job::new("readings")
            .source_function("numbers", move |_| Numbers::up_to(up_to))
            .map("reading", |input| Ok(reading(i64::try_from(*input.item())?)))
            .idempotent_sink("readings", move |_| UpsertSink { database: path.clone(), fails_at });
        println!("{what}");
        match job.run(store.clone()).await {
            Err(error) if fails_at != NEVER => println!("  ({})", ErrorChain(&error)),
            outcome => {
                outcome?;
            }
        }
        for ((station, hour), value) in table(&database)? {
            println!("  station {station}, hour {hour}: {value}");
        }
    }
    let without_failures = (0..24).map(reading).map(|row| ((row.station, row.hour), row.value)).collect();
    let converged = table(&database)? == without_failures;
    println!("the table is what it would be without failures: {converged}");
    if converged { Ok(()) } else { Err("the table did not converge".into()) }
}
