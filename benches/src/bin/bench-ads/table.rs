//! The tables: the ads with their campaigns, and the views.

use levada_testcontainers::Postgres;
use tokio_postgres::NoTls;

use crate::events::{ADS, rows};
use crate::{Arguments, Failure};

/// As a server is run, not as a test is: a commit waits for the disk. And it notes when each was made.
const SETTINGS: [(&str, &str); 5] = [
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("max_wal_size", "8GB"),
    ("shared_buffers", "1GB"),
    ("track_commit_timestamp", "on"),
];

pub(crate) fn start() -> Result<Postgres, Failure> {
    let builder =
        SETTINGS.iter().fold(Postgres::builder(), |builder, (name, value)| builder.setting(*name, *value));
    let postgres = builder.start()?;
    postgres.psql(&format!(
        "create table ads (ad int primary key, campaign int not null);
         insert into ads select n, n / 10 from generate_series(0, {ADS} - 1) as n"
    ))?;
    // Not in the same transaction.
    postgres.psql("vacuum analyze ads")?;
    Ok(postgres)
}

async fn connect(arguments: &Arguments) -> Result<tokio_postgres::Client, Failure> {
    let (client, connection) = tokio_postgres::connect(&arguments.postgres, NoTls).await?;
    // What the connection has to say, its client says, too.
    drop(tokio::spawn(connection));
    Ok(client)
}

/// Makes the table of views anew, and forgets the positions of earlier runs.
pub(crate) async fn reset(arguments: &Arguments) -> Result<(), Failure> {
    let client = connect(arguments).await?;
    client
        .batch_execute(
            "DROP TABLE IF EXISTS views;
             DROP SCHEMA IF EXISTS levada CASCADE;
             CREATE TABLE views (event bigint PRIMARY KEY, visitor text NOT NULL, page text NOT NULL,
                 ad int NOT NULL, type text NOT NULL, produced timestamptz NOT NULL, campaign int NOT NULL)",
        )
        .await?;
    client.batch_execute("CHECKPOINT").await?;
    Ok(())
}

/// Sees that there is a row for each view with a campaign, with that campaign, and no other row.
pub(crate) async fn check(arguments: &Arguments, events: u64) -> Result<(), Failure> {
    let client = connect(arguments).await?;
    let counted = "SELECT count(*), count(*) FILTER (WHERE type = 'view' AND campaign = ad / 10) FROM views";
    let counted = client.query_one(counted, &[]).await?;
    let (all, right): (i64, i64) = (counted.get(0), counted.get(1));
    let expected = rows(events) as i64;
    assert_eq!((all, right), (expected, expected), "one row for each view with a campaign");
    Ok(())
}

/// Returns how long each view took from its stamp to the commit of its row, in milliseconds; views before event `first` are
/// left out. The server takes the time when it begins to write the commit: the wait for the disk is not in it.
pub(crate) async fn latencies(arguments: &Arguments, first: u64) -> Result<Vec<f64>, Failure> {
    let client = connect(arguments).await?;
    let taken = "SELECT round(extract(epoch FROM pg_xact_commit_timestamp(xmin) - produced) * 1000)::float8
         FROM views WHERE event >= $1";
    Ok(client.query(taken, &[&(first as i64)]).await?.iter().map(|row| row.get(0)).collect())
}
