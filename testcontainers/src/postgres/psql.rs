//! Postgres' own client: the other client that reads back what we wrote.

use std::process::Command;

use crate::Error;
use crate::programs::{self, run_to_end};

/// How long a server may take to let psql in, in seconds: one that takes connections and says nothing, because it is paused
/// or no Postgres at all, would be waited for without end. (`PGCONNECT_TIMEOUT` and a URL's `connect_timeout` go before it.)
pub(super) const PATIENCE: &str = "30";
pub(super) const TIMEOUT: &str = "PGCONNECT_TIMEOUT";

/// Runs SQL and returns its rows, unaligned and without headers.
pub(super) fn psql(url: &str, sql: &str) -> Result<String, Error> {
    psql_within(&std::env::var(TIMEOUT).unwrap_or_else(|_| PATIENCE.to_owned()), url, sql)
}

fn psql_within(seconds: &str, url: &str, sql: &str) -> Result<String, Error> {
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
    psql.args(["--dbname", url, "--command", sql]).env(TIMEOUT, seconds);
    let output = run_to_end("psql", &mut psql)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// Quotes an SQL identifier: a quotation mark within is doubled.
pub(crate) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::{psql_within, quoted};

    #[test]
    fn quotes_in_identifiers_are_doubled() {
        assert_eq!(quoted(r#"a"b"#), r#""a""b""#);
    }

    /// [TST-02]
    #[test]
    fn a_server_that_says_nothing_is_an_error() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgres://{}/postgres", silent.local_addr().unwrap());
        let error = psql_within("2", &url, "SELECT 1").unwrap_err().to_string();
        assert!(error.contains("timeout"), "{error}");
    }
}
