//! TCP, and TLS on top of it.

use std::io;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::error::ProtocolError;
use super::security::Security;

pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Connects to `address`, a host and a port.
pub(super) async fn connect(
    address: &str,
    security: &Security,
    until: Instant,
) -> Result<Box<dyn Transport>, ProtocolError> {
    let failed = |cause| ProtocolError::Connect { address: address.to_owned(), cause };
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let connected = timeout_at(until, TcpStream::connect(address)).await;
    let stream = connected.unwrap_or_else(|_| Err(late())).map_err(failed)?;
    // Small requests, one at a time: nothing to gather.
    stream.set_nodelay(true).map_err(failed)?;
    let Security::Tls(tls) = security else { return Ok(Box::new(stream)) };
    let failed = |cause| ProtocolError::Tls { address: address.to_owned(), cause };
    let name = server_name(address).map_err(failed)?;
    let session = TlsConnector::from(std::sync::Arc::clone(&tls.config)).connect(name, stream);
    let made = timeout_at(until, session).await;
    Ok(Box::new(made.unwrap_or_else(|_| Err(late())).map_err(failed)?))
}

fn server_name(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(host).map_err(|cause| io::Error::new(io::ErrorKind::InvalidInput, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_server_is_its_address_without_the_port() {
        for (address, host) in [
            ("broker-1.example:9093", "broker-1.example"),
            ("127.0.0.1:9093", "127.0.0.1"),
            ("[::1]:9093", "::1"),
        ] {
            assert_eq!(server_name(address).expect("a name").to_str(), host);
        }
        assert!(server_name("no name:1").is_err());
    }
}
