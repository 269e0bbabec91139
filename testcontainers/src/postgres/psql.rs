//! Postgres' own client: the other client that reads back what we wrote.

use std::process::Command;

use crate::Error;
use crate::programs::{self, run_to_end};

/// Runs SQL and returns its rows, unaligned and without headers.
pub(super) fn psql(url: &str, sql: &str) -> Result<String, Error> {
    let mut psql = Command::new(programs::psql()?);
    psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"]);
    psql.args(["--dbname", url, "--command", sql]);
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
