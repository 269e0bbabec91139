//! Requests and answers as bytes: a length, a header with a number that the answer repeats, and the body.

use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::RequestHeader;
use kafka_protocol::protocol::{Encodable, StrBytes};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::api::Api;

/// The largest answer that is taken, in bytes. A hundred thousand transactions are listed in a tenth of it.
pub(super) const LARGEST_ANSWER: usize = 64 << 20;

/// The number that connects an answer with its request.
const CORRELATION: usize = size_of::<i32>();

/// Writes a request down.
pub(super) fn encode<A: Api>(
    request: &A,
    version: i16,
    correlation_id: i32,
    client_id: &str,
) -> Result<Bytes, String> {
    let header = RequestHeader::default()
        .with_request_api_key(A::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    // The codec's errors are texts.
    header.encode(&mut frame, A::header_version(version)).map_err(|cause| cause.to_string())?;
    request.encode(&mut frame, version).map_err(|cause| cause.to_string())?;
    let size = i32::try_from(frame.len() - size_of::<i32>()).map_err(|_| "it is too large".to_owned())?;
    frame[..size_of::<i32>()].copy_from_slice(&size.to_be_bytes());
    Ok(frame.freeze())
}

/// Why an answer could not be read.
#[derive(Debug)]
pub(super) enum ReadFailure {
    /// The connection ended, or broke.
    Io(io::Error),
    /// What came is no answer of Kafka's.
    NoAnswer(String),
}

/// Reads the next answer: its number and what stands behind it. Takes memory for what has come, not for what was announced.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<(i32, Bytes), ReadFailure> {
    let mut prefix = [0; size_of::<i32>()];
    stream.read_exact(&mut prefix).await.map_err(ReadFailure::Io)?;
    let size = size_of_answer(prefix).map_err(ReadFailure::NoAnswer)?;
    let mut body = Vec::new();
    stream.take(size as u64).read_to_end(&mut body).await.map_err(ReadFailure::Io)?;
    if body.len() < size {
        let cause = format!("it ended after {} of {size} bytes of an answer", body.len());
        return Err(ReadFailure::Io(io::Error::new(io::ErrorKind::UnexpectedEof, cause)));
    }
    let mut body = Bytes::from(body);
    Ok((body.get_i32(), body))
}

fn size_of_answer(prefix: [u8; 4]) -> Result<usize, String> {
    let size = i32::from_be_bytes(prefix);
    match usize::try_from(size) {
        Ok(size) if (CORRELATION..=LARGEST_ANSWER).contains(&size) => Ok(size),
        // A TLS record of an alert or a handshake begins so.
        _ if matches!(prefix, [0x15 | 0x16, 0x03, ..]) => {
            Err("it speaks TLS, and security.protocol is plaintext".to_owned())
        }
        _ if prefix == *b"HTTP" => Err("it speaks HTTP".to_owned()),
        _ => Err(format!("it would be {size} bytes long; from {CORRELATION} to {LARGEST_ANSWER} are taken")),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// Announces the largest answer, sends part of it, and notes how much room there is for what follows.
    struct Announcing {
        left: usize,
        most_room: usize,
    }

    impl AsyncRead for Announcing {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if buf.remaining() == size_of::<i32>() {
                buf.put_slice(&i32::try_from(LARGEST_ANSWER).expect("a length").to_be_bytes());
                return Poll::Ready(Ok(()));
            }
            self.most_room = self.most_room.max(buf.capacity());
            let sent = self.left.min(buf.remaining());
            buf.put_slice(&vec![0; sent]);
            self.left -= sent;
            Poll::Ready(Ok(()))
        }
    }

    /// [KSK-21] memory follows what has come, not what was announced.
    #[tokio::test]
    async fn answer_that_is_announced_takes_no_memory_before_it_comes() {
        for sent in [0, 10, 100_000] {
            let mut stream = Announcing { left: sent, most_room: 0 };
            let failure = read(&mut stream).await.expect_err("it ends too early");
            assert!(matches!(failure, ReadFailure::Io(_)), "{failure:?}");
            assert!(stream.most_room <= 4 * sent + 1024, "{} for {sent}", stream.most_room);
        }
    }
}
