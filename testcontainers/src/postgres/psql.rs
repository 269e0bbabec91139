//! Postgres' own client: the other client that reads back what we wrote.

use std::process::Command;

use crate::Error;
use crate::programs::{self, run_to_end};

/// How long a client of Postgres waits for a connection: a paused server would let it wait for ever.
pub(super) const CONNECT_TIMEOUT: (&str, &str) = ("PGCONNECT_TIMEOUT", "30");

/// Runs SQL and returns its rows, unaligned and without headers.
pub(super) fn psql(url: &str, sql: &str) -> Result<String, Error> {
    let mut psql = Command::new(programs::psql()?);
    // Without a password in the URL it would ask the terminal for one, if there is any.
    psql.args([
        "--no-psqlrc",
        "--no-password",
        "--quiet",
        "--tuples-only",
        "--no-align",
        "--set",
        "ON_ERROR_STOP=1",
    ]);
    psql.args(["--dbname", url, "--command", sql]).env(CONNECT_TIMEOUT.0, CONNECT_TIMEOUT.1);
    let output = run_to_end("psql", &mut psql)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// Quotes an SQL identifier: a quotation mark within is doubled.
pub(crate) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quotes_in_identifiers_are_doubled() {
        assert_eq!(quoted(r#"a"b"#), r#""a""b""#);
    }
}
