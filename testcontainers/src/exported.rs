//! The addresses that `levada-testcontainers run` exports to the command it runs.

use crate::{Error, variable};

/// The broker's address.
pub(crate) const KAFKA_BOOTSTRAP: &str = "LEVADA_KAFKA_BOOTSTRAP";
/// The broker's log file, if it is on this machine.
pub(crate) const KAFKA_LOG: &str = "LEVADA_KAFKA_LOG";
/// The URL of the Postgres server, with user and password.
pub(crate) const POSTGRES_URL: &str = "LEVADA_POSTGRES_URL";
/// The Postgres server's log file, if it is on this machine.
pub(crate) const POSTGRES_LOG: &str = "LEVADA_POSTGRES_LOG";

/// Returns the address in a variable; `None` when it is not set.
pub(crate) fn address(variable: &'static str) -> Result<Option<String>, Error> {
    match variable::text(variable)? {
        Some(address) if address.is_empty() => Err(Error::Address { variable, reason: "it is empty" }),
        address => Ok(address),
    }
}

/// Makes the error for an address that is not set although nobody but its owner may start the server.
pub(crate) fn missing(variable: &'static str) -> Error {
    Error::Address { variable, reason: "it is not set, and an external provider starts nothing" }
}
