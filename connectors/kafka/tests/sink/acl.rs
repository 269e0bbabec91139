//! Rights on a broker that knows of rights.

use bytes::{BufMut as _, BytesMut};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::{ApiKey, CreateAclsRequest, CreateAclsResponse, RequestHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, StrBytes};
use levada_testcontainers::{Kafka, KafkaBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const VERSION: i16 = 3;
const TOPIC: i8 = 2;
const CLUSTER: i8 = 4;
const TRANSACTIONAL_ID: i8 = 5;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALL: i8 = 2;
const READ: i8 = 3;
const WRITE: i8 = 4;
const ALLOW: i8 = 3;
const SOMEBODY: &str = "User:somebody-else";

/// Starts a broker on which everybody may do what nobody was granted.
pub(crate) fn broker() -> Kafka {
    authorizing(Kafka::builder()).start().expect("a broker")
}

/// The same, before it starts.
pub(crate) fn authorizing(broker: KafkaBuilder) -> KafkaBuilder {
    broker
        .property("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        .property("allow.everyone.if.no.acl.found", "true")
}

/// Grants WRITE on transactional ids that begin so to somebody else, hence to nobody of a test.
pub(crate) async fn reserve_ids(kafka: &Kafka, head: &str) {
    let ids = creation(TRANSACTIONAL_ID, head).with_resource_pattern_type(PREFIXED);
    create(kafka, vec![ids.with_principal(text(SOMEBODY)).with_operation(WRITE)]).await;
}

/// Grants what only brokers do to the brokers alone, who are nobody by name.
pub(crate) async fn reserve_cluster(kafka: &Kafka) {
    let cluster = creation(CLUSTER, "kafka-cluster").with_principal(text("User:ANONYMOUS"));
    create(kafka, vec![cluster.with_operation(ALL)]).await;
}

/// Lets everybody write to a topic, and somebody else read it.
pub(crate) async fn reserve_reading(kafka: &Kafka, topic: &str) {
    let write = creation(TOPIC, topic).with_principal(text("User:*")).with_operation(WRITE);
    let read = creation(TOPIC, topic).with_principal(text(SOMEBODY)).with_operation(READ);
    create(kafka, vec![write, read]).await;
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn creation(resource: i8, name: &str) -> AclCreation {
    AclCreation::default()
        .with_resource_type(resource)
        .with_resource_name(text(name))
        .with_resource_pattern_type(LITERAL)
        .with_host(text("*"))
        .with_permission_type(ALLOW)
}

async fn create(kafka: &Kafka, creations: Vec<AclCreation>) {
    let request = CreateAclsRequest::default().with_creations(creations);
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::CreateAcls as i16)
        .with_request_api_version(VERSION);
    let mut frame = BytesMut::new();
    header.encode(&mut frame, 2).expect("a header");
    request.encode(&mut frame, VERSION).expect("a request");
    let mut broker = TcpStream::connect(kafka.broker(1).address()).await.expect("connect");
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
