//! From an address to a connection: the name, TCP, TLS, versions, who we are.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, Error as TlsError};

use super::address::Address;
use super::authenticate::{Authenticator, Nothing};
use super::config::{ConfigError, ProtocolConfig};
use super::connection::{Connection, Wire};
use super::error::ProtocolError;
use super::tls;

/// Makes connections.
pub(super) struct Connecting {
    client_id: String,
    tls: Option<TlsConnector>,
    authenticator: Arc<dyn Authenticator>,
}

impl Connecting {
    pub(super) fn new(config: &ProtocolConfig) -> Result<Self, ConfigError> {
        let tls = config.tls.as_ref().map(tls::connector).transpose()?;
        Ok(Self { client_id: config.client_id.clone(), tls, authenticator: Arc::new(Nothing) })
    }

    #[cfg(test)]
    pub(super) fn with(mut self, authenticator: Arc<dyn Authenticator>) -> Self {
        self.authenticator = authenticator;
        self
    }

    pub(super) async fn connect(
        &self,
        broker: &Address,
        until: Instant,
    ) -> Result<Connection, ProtocolError> {
        let failed = |cause| ProtocolError::Connect { broker: broker.clone(), cause };
        let connected = timeout_at(until, TcpStream::connect((broker.host.as_str(), broker.port)));
        let tcp = connected.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
        // Each request is one write and waits for its answer: nothing is gained by collecting.
        tcp.set_nodelay(true).map_err(failed)?;
        let stream: Box<dyn Wire> = match &self.tls {
            None => Box::new(tcp),
            Some(connector) => Box::new(encrypted(connector, tcp, broker, until).await?),
        };
        let mut connection = Connection::new(stream, broker.clone(), &self.client_id, until).await?;
        self.authenticator.authenticate(&mut connection, until).await?;
        Ok(connection)
    }
}

async fn encrypted(
    connector: &TlsConnector,
    tcp: TcpStream,
    broker: &Address,
    until: Instant,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ProtocolError> {
    let broker = || broker.clone();
    let name = ServerName::try_from(broker().host)
        .map_err(|cause| ProtocolError::Tls { broker: broker(), cause: io::Error::other(cause) })?;
    let shaken = timeout_at(until, connector.connect(name, tcp)).await;
    shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|cause| {
        if is_of_tls(&cause) {
            ProtocolError::Tls { broker: broker(), cause }
        } else {
            ProtocolError::Connect { broker: broker(), cause }
        }
    })
}

/// Tells whether both sides could speak, and do not agree: another attempt would end the same.
pub(super) fn is_of_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>());
    // A broker that ends may say so.
    cause.is_some_and(|cause| !matches!(cause, TlsError::AlertReceived(AlertDescription::InternalError)))
}
