//! A peer that says what a test wants it to say. It stands in for no broker: what brokers do is shown on real ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse, MetadataResponse,
};
use kafka_protocol::protocol::{
    Decodable as _, Encodable, HeaderVersion, StrBytes, decode_request_header_from_buffer,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) body: Bytes,
    /// How many requests for the same API came before, on all connections.
    pub(crate) before: usize,
}

/// What is said to it.
pub(crate) enum Reply {
    /// Header tags and body, behind the right length and number.
    Answer(Bytes),
    /// The same, and the end of the connection.
    Last(Bytes),
    /// The same under another number.
    Misnumbered(Bytes),
    /// The same, of which so many bytes are left out before the connection is closed.
    Cut(Bytes, usize),
    /// These bytes and no others; the connection is closed if they are to be the last.
    Raw(Bytes, bool),
    /// Nothing, until the client goes.
    Silence,
    /// The end.
    Close,
}

pub(crate) struct Peer {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<(ApiKey, i16)>>>,
    /// How many connections have ended.
    ended: watch::Receiver<usize>,
}

impl Peer {
    /// Answers by a script, which is told the peer's port.
    pub(crate) async fn start(script: impl Fn(u16, &Asked) -> Reply + Send + Sync + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let port = listener.local_addr().expect("an address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (ends, ended) = watch::channel(0);
        let (noted, script) = (Arc::clone(&asked), Arc::new(script));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, script, ends) = (Arc::clone(&noted), Arc::clone(&script), ends.clone());
                tokio::spawn(async move {
                    serve(stream, &noted, |asked| script(port, asked)).await;
                    ends.send_modify(|count| *count += 1);
                });
            }
        });
        Peer { address: format!("127.0.0.1:{port}"), asked, ended }
    }

    /// Returns the versions in which an API was asked for, in order.
    pub(crate) fn asked(&self, api: ApiKey) -> Vec<i16> {
        let asked = self.asked.lock().expect("no panic");
        asked.iter().filter(|(of, _)| *of == api).map(|(_, version)| *version).collect()
    }

    /// Waits until so many connections have ended.
    pub(crate) async fn until_ended(&self, count: usize) {
        let mut ended = self.ended.clone();
        let waited = tokio::time::timeout(super::support::PATIENCE, ended.wait_for(|ended| *ended >= count));
        waited.await.expect("in time").expect("the peer");
    }
}

async fn serve(mut stream: TcpStream, noted: &Mutex<Vec<(ApiKey, i16)>>, script: impl Fn(&Asked) -> Reply) {
    while let Ok(size) = stream.read_i32().await {
        let mut frame = vec![0; usize::try_from(size).expect("a length")];
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let mut body = Bytes::from(frame);
        let header = decode_request_header_from_buffer(&mut body).expect("a header");
        let api = ApiKey::try_from(header.request_api_key).expect("an API");
        let version = header.request_api_version;
        let before = {
            let mut noted = noted.lock().expect("no panic");
            let before = noted.iter().filter(|(of, _)| *of == api).count();
            noted.push((api, version));
            before
        };
        let framed = |number: i32, answer: &Bytes| {
            let mut frame = BytesMut::new();
            frame.put_i32(i32::try_from(answer.len() + 4).expect("a length"));
            frame.put_i32(number);
            frame.put_slice(answer);
            frame.freeze()
        };
        let number = header.correlation_id;
        let (bytes, is_last) = match script(&Asked { api, version, body, before }) {
            Reply::Answer(answer) => (framed(number, &answer), false),
            Reply::Last(answer) => (framed(number, &answer), true),
            Reply::Misnumbered(answer) => (framed(number + 1, &answer), false),
            Reply::Cut(answer, left_out) => {
                let whole = framed(number, &answer);
                (whole.slice(..whole.len() - left_out), true)
            }
            Reply::Raw(bytes, is_last) => (bytes, is_last),
            Reply::Close => (Bytes::new(), true),
            Reply::Silence => {
                // Until the client goes.
                stream.read_u8().await.ok();
                return;
            }
        };
        if stream.write_all(&bytes).await.is_err() || is_last {
            return;
        }
    }
}

/// Writes an answer down in a version.
pub(crate) fn encoded<R: Encodable + HeaderVersion>(answer: &R, version: i16) -> Bytes {
    let mut body = BytesMut::new();
    if R::header_version(version) > 0 {
        // No tagged fields.
        body.put_u8(0);
    }
    answer.encode(&mut body, version).expect("an answer");
    body.freeze()
}

/// What a broker speaks that is new enough, and newer in places.
pub(crate) fn all_spoken() -> BTreeMap<i16, (i16, i16)> {
    BTreeMap::from([
        (ApiKey::ApiVersions as i16, (0, 5)),
        (ApiKey::Metadata as i16, (0, 14)),
        (ApiKey::FindCoordinator as i16, (0, 7)),
        (ApiKey::DescribeTransactions as i16, (0, 1)),
        (ApiKey::ListTransactions as i16, (0, 3)),
        (ApiKey::DescribeProducers as i16, (0, 0)),
        (ApiKey::EndTxn as i16, (0, 5)),
        (ApiKey::InitProducerId as i16, (0, 6)),
        (ApiKey::AddOffsetsToTxn as i16, (0, 4)),
        (ApiKey::TxnOffsetCommit as i16, (0, 5)),
        (ApiKey::OffsetFetch as i16, (1, 10)),
        (ApiKey::DescribeConfigs as i16, (1, 4)),
    ])
}

pub(crate) fn versions(spoken: &BTreeMap<i16, (i16, i16)>) -> ApiVersionsResponse {
    let spoken = spoken.iter().map(|(api, (min, max))| {
        ApiVersion::default().with_api_key(*api).with_min_version(*min).with_max_version(*max)
    });
    ApiVersionsResponse::default().with_api_keys(spoken.collect())
}

/// Answers what leads to a request: versions, one broker, which coordinates everything. `None` for all else.
pub(crate) fn way_in(port: u16, asked: &Asked) -> Option<Reply> {
    let host = StrBytes::from_static_str("127.0.0.1");
    Some(Reply::Answer(match asked.api {
        ApiKey::ApiVersions => encoded(&versions(&all_spoken()), asked.version),
        ApiKey::Metadata => {
            let broker = MetadataResponseBroker::default().with_node_id(BrokerId(1));
            let broker = broker.with_host(host).with_port(i32::from(port));
            let cluster = Some(StrBytes::from_static_str("scripted"));
            let answer = MetadataResponse::default().with_brokers(vec![broker]).with_cluster_id(cluster);
            encoded(&answer, asked.version)
        }
        ApiKey::FindCoordinator => {
            let request =
                FindCoordinatorRequest::decode(&mut asked.body.clone(), asked.version).expect("a request");
            let named = request.coordinator_keys.into_iter().map(|key| {
                let coordinator = Coordinator::default().with_key(key).with_node_id(BrokerId(1));
                coordinator.with_host(host.clone()).with_port(i32::from(port))
            });
            encoded(&FindCoordinatorResponse::default().with_coordinators(named.collect()), asked.version)
        }
        _ => return None,
    }))
}
