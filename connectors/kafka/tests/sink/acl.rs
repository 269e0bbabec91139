//! Rights on a broker that knows of rights.

use bytes::{BufMut as _, BytesMut};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{ApiKey, CreateAclsRequest, CreateAclsResponse, RequestHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, StrBytes};
use levada_testcontainers::Kafka;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const VERSION: i16 = 3;
const TRANSACTIONAL_ID: i8 = 5;
const PREFIXED: i8 = 4;
const WRITE: i8 = 4;
const ALLOW: i8 = 3;

/// Starts a broker on which everybody may do what nobody was granted.
pub(crate) fn broker() -> Kafka {
    Kafka::builder()
        .property("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        .property("allow.everyone.if.no.acl.found", "true")
        .start()
        .expect("a broker")
}

/// Grants WRITE on transactional ids that begin so to somebody else, hence to nobody of a test.
pub(crate) async fn reserve_ids(kafka: &Kafka, head: &str) {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let creation = AclCreation::default()
        .with_resource_type(TRANSACTIONAL_ID)
        .with_resource_name(text(head))
        .with_resource_pattern_type(PREFIXED)
        .with_principal(text("User:somebody-else"))
        .with_host(text("*"))
        .with_operation(WRITE)
        .with_permission_type(ALLOW);
    let request = CreateAclsRequest::default().with_creations(vec![creation]);
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::CreateAcls as i16)
        .with_request_api_version(VERSION);
    let mut frame = BytesMut::new();
    header.encode(&mut frame, 2).expect("a header");
    request.encode(&mut frame, VERSION).expect("a request");
    let mut broker = TcpStream::connect(kafka.bootstrap()).await.expect("connect");
    let mut sized = BytesMut::new();
    sized.put_u32(frame.len() as u32);
    sized.extend_from_slice(&frame);
    broker.write_all(&sized).await.expect("sent");
    let mut answer = vec![0; broker.read_u32().await.expect("a size") as usize];
    broker.read_exact(&mut answer).await.expect("an answer");
    // Behind number and tags.
    let answer = CreateAclsResponse::decode(&mut &answer[5..], VERSION).expect("an answer");
    assert!(answer.results.iter().all(|result| result.error_code == 0), "{answer:?}");
}
