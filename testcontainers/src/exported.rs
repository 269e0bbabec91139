//! The addresses that `levada-testcontainers run` exports to the command it runs.

use crate::Error;

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
    match std::env::var(variable) {
        Ok(address) if address.is_empty() => Err(Error::Address { variable, reason: "it is empty" }),
        Ok(address) => Ok(Some(address)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Error::Address { variable, reason: "it is no text" }),
    }
}
