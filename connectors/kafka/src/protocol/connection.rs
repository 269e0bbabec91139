//! One connection to one broker: a request, its answer, the next.

use std::io;
use std::mem::MaybeUninit;

use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Decodable as _, HeaderVersion as _, StrBytes};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use super::address::Address;
use super::api::Api;
use super::code::ErrorCode;
use super::error::ProtocolError;
use super::frame::{self, ReadFailure};
use super::layout;
use super::versions::Versions;

/// A connection that a request may go out on.
///
/// It is handed on by value and kept only behind a whole answer: a future that is dropped, or fails, in the middle takes
/// the connection with it, and no later request can be given the answer of an earlier one.
pub(super) struct Connection {
    stream: Box<dyn Wire>,
    broker: Address,
    client_id: String,
    correlation_id: i32,
    versions: Versions,
    /// Since when nothing was asked.
    idle_since: Instant,
}

/// A stream of bytes over TCP.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("broker", &self.broker).finish_non_exhaustive()
    }
}

impl Connection {
    /// Takes a stream and agrees on versions.
    pub(super) async fn new(
        stream: Box<dyn Wire>,
        broker: Address,
        client_id: &str,
        until: Instant,
    ) -> Result<Self, ProtocolError> {
        let client_id = client_id.to_owned();
        let versions = Versions::default();
        let idle_since = Instant::now();
        let mut new = Self { stream, broker, client_id, correlation_id: 0, versions, idle_since };
        new.versions = new.agree(until).await?;
        Ok(new)
    }

    pub(super) fn broker(&self) -> &Address {
        &self.broker
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Tells whether nothing has come while nothing was asked. What comes then is the end of the connection, or no answer
    /// of ours.
    pub(super) fn is_quiet(&self) -> bool {
        // The system is asked, not the runtime, which hears of the end a moment later.
        let waits = SockRef::from(self.stream.tcp()).peek(&mut [MaybeUninit::uninit()]);
        waits.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Tells whether the broker speaks a request, without sending it.
    pub(super) fn speaks<A: Api>(&self) -> Result<(), ProtocolError> {
        self.versions.choose::<A>(&self.broker).map(drop)
    }

    /// Sends a request and waits for its answer; `told` names it in errors.
    ///
    /// # Errors
    /// [`ProtocolError::OutcomeUnknown`] where the request changes something, went out whole, and its answer did not come or
    /// is none.
    pub(super) async fn call<A: Api>(
        &mut self,
        request: &A,
        told: &str,
        until: Instant,
    ) -> Result<A::Response, ProtocolError> {
        let version = self.versions.choose::<A>(&self.broker)?;
        self.send(request, version, told, until).await?;
        #[cfg(feature = "failpoints")]
        if let Some(sent) = A::SENT {
            crate::failpoint::reached(sent).await;
        }
        let answered = match self.receive(told, until).await {
            Ok(answer) => self.decode::<A>(answer, version, told),
            Err(error) => Err(error),
        };
        self.idle_since = Instant::now();
        answered.map_err(|cause| self.lost::<A>(told, cause))
    }

    fn lost<A: Api>(&self, told: &str, cause: ProtocolError) -> ProtocolError {
        if !A::CHANGES {
            return cause;
        }
        let (broker, request) = (self.broker.clone(), told.to_owned());
        ProtocolError::OutcomeUnknown { broker, request, cause: Box::new(cause) }
    }

    /// Asks what the broker speaks. One that does not know our version of the question answers in the oldest one, with an
    /// error, and is asked in that.
    async fn agree(&mut self, until: Instant) -> Result<Versions, ProtocolError> {
        const TOLD: &str = "ApiVersions";
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("levada"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let newest = ApiVersionsRequest::OURS.max;
        self.send(&request, newest, TOLD, until).await?;
        let mut answer = self.receive(TOLD, until).await?;
        let mut version = newest;
        if answer.starts_with(&ErrorCode::UNSUPPORTED_VERSION.0.to_be_bytes()) {
            version = ApiVersionsRequest::OURS.min;
            self.send(&ApiVersionsRequest::default(), version, TOLD, until).await?;
            answer = self.receive(TOLD, until).await?;
        }
        let answer: ApiVersionsResponse = self.decode::<ApiVersionsRequest>(answer, version, TOLD)?;
        super::error::accepted(TOLD, answer.error_code)?;
        Ok(Versions::told(&answer))
    }

    /// Writes a request out. When this fails, part of it at least has not left: the broker cannot have carried it out.
    async fn send<A: Api>(
        &mut self,
        request: &A,
        version: i16,
        told: &str,
        until: Instant,
    ) -> Result<(), ProtocolError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = frame::encode(request, version, self.correlation_id, &self.client_id)
            .map_err(|reason| ProtocolError::Unencodable { request: told.to_owned(), reason })?;
        let stream = &mut self.stream;
        let write = async {
            stream.write_all(&frame).await?;
            stream.flush().await
        };
        let started = Instant::now();
        match timeout_at(until, write).await {
            Ok(written) => written.map_err(|cause| self.broken(told, cause)),
            Err(_) => Err(self.unanswered(told, started)),
        }
    }

    /// Waits for the answer to the last request, and returns what stands behind the number in it.
    async fn receive(&mut self, told: &str, until: Instant) -> Result<Bytes, ProtocolError> {
        let started = Instant::now();
        let Ok(read) = timeout_at(until, frame::read(&mut self.stream)).await else {
            return Err(self.unanswered(told, started));
        };
        match read {
            Ok((number, answer)) if number == self.correlation_id => Ok(answer),
            Ok((number, _)) => {
                let reason = format!("it answers request {number}, and {} was sent", self.correlation_id);
                Err(self.malformed(told, reason))
            }
            Err(ReadFailure::NoAnswer(reason)) => Err(self.malformed(told, reason)),
            Err(ReadFailure::Io(cause)) => Err(self.broken(told, cause)),
        }
    }

    fn decode<A: Api>(
        &self,
        mut answer: Bytes,
        version: i16,
        told: &str,
    ) -> Result<A::Response, ProtocolError> {
        if A::Response::header_version(version) > 0 {
            layout::skip_header_tags(&mut answer).map_err(|reason| self.malformed(told, reason))?;
        }
        layout::check(&A::LAYOUT, version, &answer).map_err(|reason| self.malformed(told, reason))?;
        A::Response::decode(&mut answer, version)
            .map_err(|cause| self.malformed(told, cause.to_string().trim_end().to_owned()))
    }

    fn broken(&self, told: &str, cause: io::Error) -> ProtocolError {
        let broker = self.broker.clone();
        // With TLS 1.3 a client learns here that the broker does not take its certificate.
        if super::connect::is_of_tls(&cause) {
            return ProtocolError::Tls { broker, cause };
        }
        ProtocolError::Broken { broker, request: told.to_owned(), cause }
    }

    fn unanswered(&self, told: &str, started: Instant) -> ProtocolError {
        let within = started.elapsed();
        ProtocolError::NoAnswer { broker: self.broker.clone(), request: told.to_owned(), within }
    }

    fn malformed(&self, told: &str, reason: String) -> ProtocolError {
        ProtocolError::Malformed { broker: self.broker.clone(), request: told.to_owned(), reason }
    }
}
