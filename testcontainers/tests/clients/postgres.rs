//! tokio-postgres and psql: a connection, an answer.

use std::process::Command;

use tokio_postgres::{Client, Error, NoTls};

/// A connection in the clear, served by a task of the test's runtime.
pub async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// What psql answers at that URL, or why it does not.
pub fn psql(url: &str, sql: &str) -> Result<String, String> {
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--no-password", "--tuples-only", "--no-align"]);
    psql.args(["--dbname", url, "--command", sql]);
    let output = psql.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
