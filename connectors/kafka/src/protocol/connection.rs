//! One connection to one broker: a question, its answer, the next question.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use super::api;
use super::error::{ErrorCode, ProtocolError};
use super::frame;
use super::security::Security;
use super::transport::{Transport, connect};
use super::versions::Versions;

/// What is asked first, in the version that is asked first.
const VERSIONS_AT: i16 = 3;
/// The broker does not know that version: it answers in the oldest.
const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(35);

/// A connection that has told its versions. Whoever drops the future of [`ask`](Self::ask) must drop the connection too:
/// an answer may be on its way.
pub(super) struct Connection {
    address: String,
    stream: Box<dyn Transport>,
    versions: Versions,
    client_id: StrBytes,
    asked: i32,
}

impl Connection {
    /// Connects, and asks what the broker knows.
    pub(super) async fn open(
        address: &str,
        security: &Security,
        client_id: &StrBytes,
        until: Instant,
    ) -> Result<Self, ProtocolError> {
        let stream = connect(address, security, until).await?;
        let (address, client_id) = (address.to_owned(), client_id.clone());
        let mut connection = Self { address, stream, versions: Versions::default(), client_id, asked: 0 };
        connection.versions = connection.ask_versions(until).await?;
        Ok(connection)
    }

    async fn ask_versions(&mut self, until: Instant) -> Result<Versions, ProtocolError> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("levada"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let mut answer = self.exchange(&request, VERSIONS_AT, until).await?;
        let code = answer.get(..2).map_or(0, |code| i16::from_be_bytes([code[0], code[1]]));
        // The oldest version of the answer is the one that every client can read.
        let version = if ErrorCode(code) == UNSUPPORTED_VERSION { 0 } else { VERSIONS_AT };
        let response = self.decode::<ApiVersionsResponse>(&mut answer, version, ApiVersionsRequest::KEY)?;
        match ErrorCode(response.error_code) {
            ErrorCode(0) | UNSUPPORTED_VERSION => Ok(Versions::of(&response)),
            code => Err(self.refused::<ApiVersionsRequest>("this client", code)),
        }
    }

    /// Asks in the highest version that both sides know and that is not above `at_most`.
    pub(super) async fn ask<R: Request>(
        &mut self,
        request: &R,
        at_most: i16,
        until: Instant,
    ) -> Result<R::Response, ProtocolError> {
        let chosen = self.versions.choose::<R>(at_most);
        let version =
            chosen.map_err(|cause| ProtocolError::TooOld { address: self.address.clone(), cause })?;
        let mut answer = self.exchange(request, version, until).await?;
        self.decode(&mut answer, version, R::KEY)
    }

    /// Sends a request and returns the body of its answer.
    async fn exchange<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        until: Instant,
    ) -> Result<Bytes, ProtocolError> {
        let api = api::name(R::KEY);
        self.asked = self.asked.wrapping_add(1);
        let id = self.asked;
        let malformed =
            |address: &str, reason| ProtocolError::Malformed { address: address.to_owned(), api, reason };
        let encoded = frame::encode(request, version, id, &self.client_id);
        let request = encoded.map_err(|reason| malformed(&self.address, reason))?;
        let begun = Instant::now();
        let answered = timeout_at(until, self.send_and_receive(&request)).await;
        let answer = match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => {
                return Err(ProtocolError::Lost { address: self.address.clone(), api, cause });
            }
            Err(_) => {
                let within = begun.elapsed();
                return Err(ProtocolError::NoAnswer { address: self.address.clone(), api, within });
            }
        };
        let checked = answer.and_then(|mut answer| {
            frame::header::<R>(&mut answer, version, id)?;
            Ok(answer)
        });
        checked.map_err(|reason| malformed(&self.address, reason))
    }

    /// The inner error is about what the bytes say.
    async fn send_and_receive(&mut self, request: &[u8]) -> io::Result<Result<Bytes, String>> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        let size = match frame::check_size(self.stream.read_i32().await?) {
            Ok(size) => size,
            Err(reason) => return Ok(Err(reason)),
        };
        // As much memory as has come, not as much as is announced.
        let mut answer = BytesMut::new();
        while answer.len() < size {
            let left = size - answer.len();
            answer.reserve(left.min(64 << 10));
            if (&mut self.stream).take(left as u64).read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Ok(answer.freeze()))
    }

    fn decode<M: kafka_protocol::protocol::Decodable>(
        &self,
        answer: &mut Bytes,
        version: i16,
        key: i16,
    ) -> Result<M, ProtocolError> {
        frame::body(answer, version).map_err(|reason| ProtocolError::Malformed {
            address: self.address.clone(),
            api: api::name(key),
            reason,
        })
    }

    pub(super) fn refused<R: Request>(&self, subject: &str, code: ErrorCode) -> ProtocolError {
        let (address, subject) = (self.address.clone(), subject.to_owned());
        ProtocolError::Refused { address, api: api::name(R::KEY), subject, code }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

/// How long nobody uses a connection before a new one is rather made: brokers close theirs after ten minutes.
pub(super) const IDLE: Duration = Duration::from_secs(60);
