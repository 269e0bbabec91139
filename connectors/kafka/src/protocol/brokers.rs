//! Connections to brokers, kept while they are of use.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kafka_protocol::protocol::{Request, StrBytes};
use tokio::time::Instant;

use super::connection::{Connection, IDLE};
use super::error::ProtocolError;
use super::security::Security;

#[derive(Debug)]
pub(super) struct Brokers {
    bootstrap: Vec<String>,
    security: Security,
    client_id: StrBytes,
    idle: Mutex<HashMap<String, Vec<(Connection, Instant)>>>,
}

impl Brokers {
    pub(super) fn new(bootstrap: &str, security: Security, client_id: &str) -> Self {
        let bootstrap = bootstrap.split(',').map(str::trim).filter(|address| !address.is_empty());
        Self {
            bootstrap: bootstrap.map(with_port).collect(),
            security,
            client_id: StrBytes::from_string(client_id.to_owned()),
            idle: Mutex::default(),
        }
    }

    pub(super) fn bootstrap(&self) -> &[String] {
        &self.bootstrap
    }

    /// Asks one broker. The connection is kept if the answer came, and closed if not, or if this future is dropped.
    pub(super) async fn ask<R: Request>(
        &self,
        address: &str,
        request: &R,
        at_most: i16,
        until: Instant,
    ) -> Result<R::Response, ProtocolError> {
        let mut connection = match self.take(address) {
            Some(connection) => connection,
            None => Connection::open(address, &self.security, &self.client_id, until).await?,
        };
        let answer = connection.ask(request, at_most, until).await?;
        self.keep(address, connection);
        Ok(answer)
    }

    fn take(&self, address: &str) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(address)?;
        kept.retain(|(_, since)| since.elapsed() < IDLE);
        kept.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, address: &str, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.entry(address.to_owned()).or_default().push((connection, Instant::now()));
    }

    /// Closes what is kept for a broker that does not answer well: what broke one connection has likely broken the others.
    pub(super) fn forget(&self, address: &str) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }
}

/// Adds the port that librdkafka adds, too.
fn with_port(address: &str) -> String {
    let address = address.rsplit_once("://").map_or(address, |(_, address)| address);
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && (!host.contains(':') || host.ends_with(']'))
    });
    if has_port { address.to_owned() } else { format!("{address}:9092") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_port_gets_the_usual_one() {
        for (given, read) in [
            ("broker", "broker:9092"),
            ("broker:19092", "broker:19092"),
            ("SSL://broker:9093", "broker:9093"),
            ("[::1]:9093", "[::1]:9093"),
            ("[::1]", "[::1]:9092"),
        ] {
            assert_eq!(with_port(given), read);
        }
    }
}
