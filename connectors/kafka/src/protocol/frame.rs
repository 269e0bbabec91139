//! Requests and answers as bytes on a connection.
//!
//! ```text
//!   size:i32 │ header (api key, version, correlation id, client id) │ body         ──▶
//!            ◀──  size:i32 │ header (correlation id) │ body
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// The longest answer that is read. The description of the largest cluster is far below; a peer that speaks something else
/// names a size far above.
pub(super) const LONGEST_ANSWER: usize = 64 << 20;

/// Writes a request with its size in front.
pub(super) fn encode<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: &StrBytes,
) -> Result<BytesMut, String> {
    let mut frame = BytesMut::with_capacity(256);
    frame.put_i32(0);
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(client_id.clone()))
        .encode(&mut frame, R::header_version(version))
        .map_err(|cause| cause.to_string())?;
    request.encode(&mut frame, version).map_err(|cause| cause.to_string())?;
    let size = i32::try_from(frame.len() - 4).map_err(|_| "the request is larger than 2 GiB".to_owned())?;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    Ok(frame)
}

/// Checks the size that an answer names for itself.
pub(super) fn check_size(size: i32) -> Result<usize, String> {
    match usize::try_from(size) {
        Ok(size) if (4..=LONGEST_ANSWER).contains(&size) => Ok(size),
        _ => Err(format!(
            "it names a size of {size} bytes; does this port speak Kafka's protocol, without TLS?"
        )),
    }
}

/// Takes the correlation id off an answer, and its header.
pub(super) fn header<R: Request>(
    answer: &mut Bytes,
    version: i16,
    correlation_id: i32,
) -> Result<(), String> {
    let told = answer.get(..4).map(|mut bytes| bytes.get_i32());
    if told != Some(correlation_id) {
        return Err(format!("it is the answer to request {told:?}, and {correlation_id} was asked"));
    }
    let decoded = ResponseHeader::decode(answer, R::Response::header_version(version));
    decoded.map(drop).map_err(|cause| cause.to_string())
}

/// Reads the rest of an answer, all of it.
pub(super) fn body<M: Decodable>(answer: &mut Bytes, version: i16) -> Result<M, String> {
    let body = M::decode(answer, version).map_err(|cause| cause.to_string())?;
    if answer.has_remaining() {
        return Err(format!("{} bytes are left over behind it", answer.remaining()));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::EndTxnRequest;

    use super::*;

    #[test]
    fn sizes_that_no_answer_has_are_refused() {
        assert_eq!(check_size(4), Ok(4));
        for size in [-1, 0, 3, i32::MAX, i32::from_be_bytes(*b"HTTP")] {
            assert!(check_size(size).is_err(), "{size}");
        }
    }

    #[test]
    fn request_carries_its_size_key_version_and_number() {
        let frame =
            encode(&EndTxnRequest::default(), 4, 77, &StrBytes::from_static_str("me")).expect("it fits");
        assert_eq!(frame.len() - 4, usize::try_from((&frame[..]).get_i32()).expect("a size"));
        assert_eq!(&frame[4..14], [0, 26, 0, 4, 0, 0, 0, 77, 0, 2]);
    }

    #[test]
    fn answer_to_another_request_is_refused() {
        let answer = |id: i32| Bytes::from([id.to_be_bytes().as_slice(), &[0]].concat());
        assert!(header::<EndTxnRequest>(&mut answer(7), 4, 7).is_ok());
        assert!(header::<EndTxnRequest>(&mut answer(8), 4, 7).is_err());
        assert!(header::<EndTxnRequest>(&mut Bytes::from_static(&[0, 0]), 4, 7).is_err(), "half an answer");
    }
}
