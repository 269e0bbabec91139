//! An upsert into Postgres with `ON CONFLICT`: a sink of one's own, which loses its connection in the midst.
//!
//! ```text
//! cargo run -p levada-examples --bin postgres_upsert -- postgres://USER:PASSWORD@HOST/DATABASE
//! ```
//!
//! Station and hour are the key of a reading, so a repetition meets its own row. The sink gathers readings and writes them
//! with one statement: of several for one key the last counts, because `ON CONFLICT` takes a row once. When the connection
//! is lost, the job is restarted and reads again from the last checkpoint on; a reader sees older values for that while.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, ErrorClass, SinkContext, SinkError};
use levada_engine::Job;
use levada_engine::checkpoint::RestartStrategy;
use levada_engine::store::Store;
use levada_examples::Numbers;
use tokio_postgres::{Client, NoTls};

const TABLE: &str = "
    create schema if not exists levada_example;
    drop table if exists levada_example.readings;
    create table levada_example.readings (station bigint, hour bigint, value bigint, primary key (station, hour))";
const UPSERT: &str = "
    insert into levada_example.readings (station, hour, value)
    select * from unnest($1::bigint[], $2::bigint[], $3::bigint[])
    on conflict (station, hour) do update set value = excluded.value";
/// So many keys are written at once, and the rest in front of a checkpoint.
const MOST_KEYS: usize = 4;

/// Station and hour, with a value that a later one replaces.
type Reading = ((i64, i64), i64);

/// Makes a reading of a number: two stations, four readings an hour each.
fn reading(number: i64) -> Reading {
    ((number % 2, number / 8), number)
}

struct UpsertSink {
    url: String,
    client: Option<Client>,
    gathered: BTreeMap<(i64, i64), i64>,
    /// Whether the connection was lost on purpose already.
    lost: Arc<AtomicBool>,
}

/// Shows no password.
impl fmt::Debug for UpsertSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpsertSink").field("gathered", &self.gathered.len()).finish_non_exhaustive()
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // What goes wrong in there comes out of the client's next call.
    tokio::spawn(connection);
    Ok(client)
}

fn failed(doing: &'static str) -> impl FnOnce(tokio_postgres::Error) -> SinkError {
    move |cause| SinkError::new(ErrorClass::Reconnect, doing).caused_by(cause)
}

impl IdempotentSink<Reading> for UpsertSink {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        self.client = Some(connect(&self.url).await.map_err(failed("connect"))?);
        Ok(())
    }

    async fn upsert(&mut self, batch: Batch<Reading>, _: &WriteContext) -> Result<(), SinkError> {
        self.gathered.extend(batch.records().iter().map(|record| record.item));
        if self.gathered.len() < MOST_KEYS { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        let Some(client) = &self.client else { return Ok(()) };
        let (keys, values): (Vec<(i64, i64)>, Vec<i64>) =
            std::mem::take(&mut self.gathered).into_iter().unzip();
        let (stations, hours): (Vec<i64>, Vec<i64>) = keys.into_iter().unzip();
        if hours.contains(&2) && !self.lost.swap(true, Ordering::Relaxed) {
            client
                .execute("select pg_terminate_backend(pg_backend_pid())", &[])
                .await
                .map_err(failed("lose"))?;
        }
        client.execute(UPSERT, &[&stations, &hours, &values]).await.map(drop).map_err(failed("upsert"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("which database? postgres://USER:PASSWORD@HOST/DATABASE")?;
    let reader = connect(&url).await?;
    reader.batch_execute(TABLE).await?;
    let lost = Arc::new(AtomicBool::new(false));
    let job = Job::new("readings")
        .source_function("numbers", |_| Numbers::up_to(24))
        .map("reading", |input| Ok(reading(i64::try_from(*input.item())?)))
        .idempotent_sink("readings", move |_| UpsertSink {
            url: url.clone(),
            client: None,
            gathered: BTreeMap::new(),
            lost: Arc::clone(&lost),
        });
    let restarts = RestartStrategy::FixedDelay { attempts: 3, delay: Duration::from_millis(100) };
    let report = job.restarts(restarts).run(Store::open("memory:").await?).await?;
    println!("restarts: {}", report.restarts);
    let rows = reader.query("select station, hour, value from levada_example.readings", &[]).await?;
    let table: BTreeMap<_, i64> = rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    for ((station, hour), value) in &table {
        println!("station {station}, hour {hour}: {value}");
    }
    let converged = table == (0..24).map(reading).collect();
    println!("the table is what it would be without the loss: {converged}");
    if converged { Ok(()) } else { Err("the table did not converge".into()) }
}
