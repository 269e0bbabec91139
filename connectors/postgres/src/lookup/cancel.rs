//! Telling the server that nobody waits, and waiting until it has heard it.
//!
//! The driver closes its socket as soon as the request is written. A pooler takes that for a client that has gone away
//! and drops the request; and a server may carry it out at any later moment, when the connection has its next call. The
//! server closes the socket when it has passed the request on, so we wait for that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::config::Host;
use tokio_postgres::{CancelToken, Config, Error, NoTls};

/// Cancels what the connection of `token` works on. `config` is the one that it was made with.
pub(crate) async fn cancel(token: &CancelToken, config: &Config) -> Result<(), Error> {
    // Of several hosts only the driver knows which one it has; and a local socket has no pooler that minds.
    let stream = match only_address(config) {
        Some((host, port)) => TcpStream::connect((host, port)).await.ok(),
        None => None,
    };
    match stream {
        Some(stream) => token.cancel_query_raw(UntilClosed(stream), NoTls).await,
        None => token.cancel_query(NoTls).await,
    }
}

fn only_address(config: &Config) -> Option<(&str, u16)> {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match (config.get_hosts(), config.get_hostaddrs()) {
        ([Host::Tcp(host)], []) => Some((host, port)),
        _ => None,
    }
}

/// A socket whose shutdown waits until the other side has closed it.
struct UntilClosed(TcpStream);

impl AsyncRead for UntilClosed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for UntilClosed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        // It has nothing to say to a cancel; a reset is as good an end.
        match Pin::new(&mut self.0).poll_read(context, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(Ok(())),
        }
    }
}
