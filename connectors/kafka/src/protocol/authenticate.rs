//! Where a client says who it is, on a connection of its own that nothing else was asked on yet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tokio::time::Instant;

use super::connection::Connection;
use super::error::ProtocolError;

/// What an [`Authenticator`] comes back with.
pub(super) type Authenticating<'c> = Pin<Box<dyn Future<Output = Result<(), ProtocolError>> + Send + 'c>>;

/// Proves to a broker who we are: the place of SASL, whose exchanges are requests of the protocol.
pub(super) trait Authenticator: fmt::Debug + Send + Sync {
    /// Runs once on each new connection, behind TLS and the agreement on versions. A connection that it fails on is not
    /// used.
    fn authenticate<'c>(&'c self, connection: &'c mut Connection, until: Instant) -> Authenticating<'c>;
}

/// Nothing to prove, or a certificate did: plaintext, TLS and mutual TLS.
#[derive(Debug)]
pub(super) struct Nothing;

impl Authenticator for Nothing {
    fn authenticate<'c>(&'c self, _: &'c mut Connection, _: Instant) -> Authenticating<'c> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::{BufMut as _, BytesMut};
    use kafka_protocol::messages::ApiVersionsResponse;
    use kafka_protocol::protocol::Encodable as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::protocol::connect::Connecting;
    use crate::protocol::{ProtocolClient, ProtocolConfig};

    /// Says no, and how often it was asked.
    #[derive(Debug, Default)]
    struct Refusing(AtomicUsize);

    impl Authenticator for Refusing {
        fn authenticate<'c>(&'c self, connection: &'c mut Connection, _: Instant) -> Authenticating<'c> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let (broker, cause) = (connection.broker().clone(), "a wrong password".into());
            Box::pin(std::future::ready(Err(ProtocolError::Authentication { broker, cause })))
        }
    }

    /// Listens, and answers what a new connection begins with: no more than this is read.
    async fn answering_the_first_request() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let size = client.read_i32().await.expect("a length");
                let mut request = vec![0; usize::try_from(size).expect("a length")];
                client.read_exact(&mut request).await.expect("a request");
                let mut answer = BytesMut::new();
                // The first request has the number 1.
                answer.put_i32(1);
                ApiVersionsResponse::default().encode(&mut answer, 3).expect("an answer");
                client.write_i32(i32::try_from(answer.len()).expect("a length")).await.expect("sent");
                client.write_all(&answer).await.expect("sent");
                let more = client.read_u8().await;
                assert!(more.is_err(), "nothing is asked of who did not let us in");
            }
        });
        address
    }

    /// [KSK-21] the seam for SASL.
    #[tokio::test]
    async fn connection_is_authenticated_before_anything_is_asked() {
        let address = answering_the_first_request().await;
        let config = ProtocolConfig::from_properties([("bootstrap.servers", address)]).expect("properties");
        let refusing = Arc::new(Refusing::default());
        let authenticator: Arc<dyn Authenticator> = Arc::<Refusing>::clone(&refusing);
        let connecting = Connecting::new(&config).expect("no TLS").with(authenticator);
        let client = ProtocolClient::connecting_by(connecting, config);
        let error = client.cluster(&[], Duration::from_secs(60)).await.expect_err("not let in");
        assert!(matches!(error, ProtocolError::Authentication { .. }), "{error:?}");
        assert_eq!(refusing.0.load(Ordering::Relaxed), 1, "and not tried again");
    }
}
