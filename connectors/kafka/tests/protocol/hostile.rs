//! Peers that are no brokers, or broken ones: clear errors, no panic, no memory for what is not there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, EndTxnResponse};
use levada_kafka::protocol::{
    Ending, ErrorCode, Identity, ProtocolClient, ProtocolError, TransactionAdmin as _,
};

use super::peer::{Asked, Peer, Reply, all_spoken, encoded, versions, way_in};
use super::support::{PATIENCE, chain, config, key};

const SHORT: Duration = Duration::from_millis(500);

fn client(peer: &Peer) -> ProtocolClient {
    ProtocolClient::new(config(&peer.address).patience(SHORT)).expect("a client")
}

/// Time for a few attempts.
const A_WHILE: Duration = Duration::from_secs(3);

/// What comes of a peer that says always the same, where that is final.
async fn refused_of(reply: impl Fn() -> Reply + Send + Sync + 'static) -> ProtocolError {
    let peer = Peer::start(move |_, _| reply()).await;
    let client = ProtocolClient::new(config(&peer.address).patience(PATIENCE)).expect("a client");
    client.cluster(&[], PATIENCE).await.expect_err("no broker")
}

/// The same, where it is tried again.
async fn told_by(reply: impl Fn() -> Reply + Send + Sync + 'static) -> ProtocolError {
    let peer = Peer::start(move |_, _| reply()).await;
    client(&peer).cluster(&[], A_WHILE).await.expect_err("no broker")
}

fn raw(bytes: &'static [u8]) -> Reply {
    Reply::Raw(Bytes::from_static(bytes), false)
}

/// [KSK-21]
#[tokio::test]
async fn garbage_is_refused_at_once_with_what_is_wrong() {
    for (bytes, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "it speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "it speaks TLS"),
        (b"\x7f\xff\xff\xff", "2147483647 bytes long"),
        (b"\xff\xff\xff\xff", "-1 bytes long"),
        (b"\x00\x00\x00\x00", "0 bytes long"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "bytes long"),
    ] {
        let error = refused_of(move || raw(bytes)).await;
        assert!(matches!(error, ProtocolError::Malformed { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// [KSK-21] an answer to another request would be taken for the one to this.
#[tokio::test]
async fn answer_under_another_number_is_refused() {
    let error = refused_of(|| Reply::Misnumbered(encoded(&versions(&all_spoken()), 3))).await;
    assert!(matches!(error, ProtocolError::Malformed { .. }), "{error:?}");
    assert!(error.to_string().contains("it answers request 2, and 1 was sent"), "{error}");
}

/// [KSK-21] four thousand million versions, in five bytes.
#[tokio::test]
async fn array_that_is_announced_and_not_there_is_refused() {
    let error = refused_of(|| Reply::Answer(Bytes::from_static(&[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]))).await;
    assert!(matches!(error, ProtocolError::Malformed { .. }), "{error:?}");
    assert!(error.to_string().contains("it ends too early"), "{error}");
}

/// [KSK-21]
#[tokio::test]
async fn connection_that_ends_in_the_middle_is_told_behind_the_deadline() {
    for left_out in [1, 10, 50] {
        let error = told_by(move || Reply::Cut(encoded(&versions(&all_spoken()), 3), left_out)).await;
        assert!(matches!(error, ProtocolError::Deadline { .. }), "{error:?}");
        assert!(chain(&error).contains("it ended after"), "{}", chain(&error));
    }
    let error = told_by(|| Reply::Close).await;
    assert!(chain(&error).contains("broke during ApiVersions"), "{}", chain(&error));
}

/// [KSK-21] [KSK-26]
#[tokio::test]
async fn answer_that_is_announced_and_does_not_come_is_not_waited_for_beyond_the_deadline() {
    let started = Instant::now();
    // 64 MiB, of which nothing comes.
    let error = told_by(|| raw(b"\x04\x00\x00\x00")).await;
    assert!(chain(&error).contains("did not answer ApiVersions"), "{}", chain(&error));
    assert!((A_WHILE..PATIENCE / 2).contains(&started.elapsed()), "{:?}", started.elapsed());
}

/// [KSK-21]
#[tokio::test]
async fn nobody_who_listens_is_told_behind_the_deadline() {
    let error = ProtocolClient::new(config("127.0.0.1:1")).expect("a client").cluster(&[], A_WHILE).await;
    let error = error.expect_err("nobody");
    assert!(chain(&error).contains("cannot connect to 127.0.0.1:1"), "{}", chain(&error));
    assert!(error.is_retriable());
}

fn scripted_end(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> impl Fn(u16, &Asked) -> Reply {
    move |port, asked| way_in(port, asked).unwrap_or_else(|| reply(asked))
}

async fn commit(client: &ProtocolClient) -> Result<(), ProtocolError> {
    let open = Identity { producer_id: 7, epoch: 0 };
    client.end(key("id", open), Ending::Commit, PATIENCE).await
}

/// [KSK-09] whatever comes instead of the answer to a commit, nobody knows whether it was carried out; and it is not sent
/// again behind the caller's back.
#[tokio::test]
async fn commit_that_is_answered_by_nonsense_has_an_unknown_outcome() {
    let done = |asked: &Asked| encoded(&EndTxnResponse::default(), asked.version);
    let replies: [fn(&Asked, Bytes) -> Reply; 6] = [
        |_, _| Reply::Close,
        |_, _| Reply::Silence,
        |_, answer| Reply::Cut(answer, 1),
        |_, answer| Reply::Misnumbered(answer),
        |_, _| raw(b"\x7f\xff\xff\xff"),
        |_, answer| Reply::Answer(Bytes::from([&answer[..], &[0]].concat())),
    ];
    for reply in replies {
        let peer = Peer::start(scripted_end(move |asked| reply(asked, done(asked)))).await;
        let client = client(&peer);
        let error = commit(&client).await.expect_err("no answer");
        assert!(error.is_outcome_unknown(), "{error:?}");
        assert_eq!(peer.asked(ApiKey::EndTxn).len(), 1, "{error:?}");
    }
}

/// Cancel safety: the connection ends with the call, and the next call has one of its own.
#[tokio::test]
async fn dropped_call_closes_its_connection_and_no_other_call_sees_its_answer() {
    let reply = |asked: &Asked| match asked.before {
        0 => Reply::Silence,
        _ => Reply::Answer(encoded(&EndTxnResponse::default().with_error_code(53), asked.version)),
    };
    let peer = Peer::start(scripted_end(reply)).await;
    let client = client(&peer);
    {
        let mut dropped = Box::pin(commit(&client));
        let sent = async {
            while peer.asked(ApiKey::EndTxn).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut dropped => panic!("it was answered"),
            () = sent => {}
        }
    }
    peer.until_ended(1).await;
    let error = commit(&client).await.expect_err("refused");
    assert_eq!(error.code(), Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED), "{error:?}");
}

/// A late answer is nobody's: the connection of a call that ended without one is closed, not kept for the next.
#[tokio::test]
async fn connection_of_a_call_without_an_answer_is_closed() {
    let peer = Peer::start(scripted_end(|_| Reply::Silence)).await;
    let client = client(&peer);
    let error = commit(&client).await.expect_err("no answer");
    assert!(chain(&error).contains("did not answer"), "{}", chain(&error));
    peer.until_ended(1).await;
}
