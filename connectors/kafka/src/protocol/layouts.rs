//! The layouts, held against the codec: what it writes is walked to the end, and what is walked to the end it reads.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_transactions_response::TransactionState as ListedState;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, ApiVersionsRequest, ApiVersionsResponse, BrokerId,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeProducersRequest, DescribeProducersResponse,
    DescribeTransactionsRequest, DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, GroupId, InitProducerIdRequest, InitProducerIdResponse,
    ListTransactionsRequest, ListTransactionsResponse, MetadataRequest, MetadataResponse, OffsetFetchRequest,
    OffsetFetchResponse, TopicName, TransactionalId, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
    WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, StrBytes};
use proptest::prelude::*;

use super::api::Api;
use super::layout::check;

fn text(value: &'static str) -> StrBytes {
    StrBytes::from_static_str(value)
}

fn topic(name: &'static str) -> TopicName {
    TopicName(text(name))
}

/// Looks at a sample in each version that is spoken.
fn hold<A: Api>(sample: &A::Response) {
    for version in A::OURS.min..=A::OURS.max {
        let mut encoded = BytesMut::new();
        sample.encode(&mut encoded, version).unwrap_or_else(|error| panic!("{} {version}: {error}", A::NAME));
        let whole = encoded.freeze();
        check(&A::LAYOUT, version, &whole).unwrap_or_else(|error| panic!("{} {version}: {error}", A::NAME));
        for length in 0..whole.len() {
            let cut = whole.slice(..length);
            check(&A::LAYOUT, version, &cut).expect_err("an answer that is cut");
        }
        let longer = Bytes::from([&whole[..], &[0]].concat());
        check(&A::LAYOUT, version, &longer).expect_err("an answer that is longer");
        hold_damaged::<A>(version, &whole);
    }
}

/// What passes in spite of its damage must be safe to read.
fn hold_damaged<A: Api>(version: i16, whole: &Bytes) {
    for place in 0..whole.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.to_vec();
            damaged[place] = byte;
            read_if_checked::<A>(version, Bytes::from(damaged));
        }
    }
}

fn read_if_checked<A: Api>(version: i16, mut bytes: Bytes) {
    if check(&A::LAYOUT, version, &bytes).is_ok() {
        // It may still say no, for instance to a text that is no UTF-8.
        if A::Response::decode(&mut bytes, version).is_ok() {
            assert!(bytes.is_empty(), "{} {version}: the codec has read less than was checked", A::NAME);
        }
    }
}

fn versions() -> ApiVersionsResponse {
    let supported = SupportedFeatureKey::default().with_name(text("transaction.version")).with_max_version(2);
    let finalized = FinalizedFeatureKey::default().with_name(text("transaction.version"));
    ApiVersionsResponse::default()
        .with_api_keys(vec![ApiVersion::default().with_api_key(26).with_max_version(5); 3])
        .with_supported_features(vec![supported; 2])
        .with_finalized_features_epoch(7)
        .with_finalized_features(vec![finalized])
        .with_zk_migration_ready(true)
}

fn metadata() -> MetadataResponse {
    let broker = MetadataResponseBroker::default().with_host(text("host")).with_port(9092);
    let partition = MetadataResponsePartition::default()
        .with_replica_nodes(vec![BrokerId(1), BrokerId(2)])
        .with_isr_nodes(vec![BrokerId(1)])
        .with_offline_replicas(vec![BrokerId(2)]);
    let known =
        MetadataResponseTopic::default().with_name(Some(topic("t"))).with_partitions(vec![partition; 2]);
    MetadataResponse::default()
        .with_brokers(vec![broker.clone().with_rack(Some(text("rack"))), broker])
        .with_cluster_id(Some(text("cluster")))
        .with_topics(vec![known])
}

fn coordinators() -> FindCoordinatorResponse {
    let known = Coordinator::default().with_key(text("key")).with_host(text("host")).with_port(9092);
    let none = Coordinator::default().with_error_code(15).with_error_message(Some(text("none")));
    FindCoordinatorResponse::default().with_coordinators(vec![known, none])
}

fn described() -> DescribeTransactionsResponse {
    let topics = vec![TopicData::default().with_topic(topic("t")).with_partitions(vec![0, 1, 2])];
    let state = TransactionState::default()
        .with_transactional_id(TransactionalId(text("id")))
        .with_transaction_state(text("Ongoing"))
        .with_topics(topics);
    DescribeTransactionsResponse::default().with_transaction_states(vec![state; 2])
}

fn listed() -> ListTransactionsResponse {
    let state = ListedState::default()
        .with_transactional_id(TransactionalId(text("id")))
        .with_transaction_state(text("Ongoing"));
    ListTransactionsResponse::default()
        .with_unknown_state_filters(vec![text("a"), text("b")])
        .with_transaction_states(vec![state; 3])
}

fn producers() -> DescribeProducersResponse {
    let partition = PartitionResponse::default()
        .with_error_message(Some(text("message")))
        .with_active_producers(vec![ProducerState::default(); 2]);
    let of_topic = TopicResponse::default().with_name(topic("t")).with_partitions(vec![partition; 2]);
    DescribeProducersResponse::default().with_topics(vec![of_topic])
}

fn offsets() -> OffsetFetchResponse {
    let partition = OffsetFetchResponsePartitions::default().with_metadata(Some(text("3-17")));
    let of_topic =
        OffsetFetchResponseTopics::default().with_name(topic("t")).with_partitions(vec![partition; 2]);
    let group =
        OffsetFetchResponseGroup::default().with_group_id(GroupId(text("g"))).with_topics(vec![of_topic]);
    OffsetFetchResponse::default().with_groups(vec![group; 2])
}

fn marked() -> TxnOffsetCommitResponse {
    let partition = TxnOffsetCommitResponsePartition::default().with_error_code(3);
    let of_topic =
        TxnOffsetCommitResponseTopic::default().with_name(topic("t")).with_partitions(vec![partition; 2]);
    TxnOffsetCommitResponse::default().with_topics(vec![of_topic; 2])
}

fn completed() -> WriteTxnMarkersResponse {
    let partition = WritableTxnMarkerPartitionResult::default().with_error_code(6);
    let of_topic =
        WritableTxnMarkerTopicResult::default().with_name(topic("t")).with_partitions(vec![partition; 2]);
    let marker = WritableTxnMarkerResult::default().with_topics(vec![of_topic; 2]);
    WriteTxnMarkersResponse::default().with_markers(vec![marker; 2])
}

fn settings() -> DescribeConfigsResponse {
    let synonym = DescribeConfigsSynonym::default().with_name(text("s")).with_value(Some(text("1")));
    let setting = DescribeConfigsResourceResult::default()
        .with_name(text("transaction.max.timeout.ms"))
        .with_value(Some(text("900000")))
        .with_synonyms(vec![synonym])
        .with_documentation(Some(text("longer")));
    let of_broker =
        DescribeConfigsResult::default().with_resource_name(text("1")).with_configs(vec![setting; 2]);
    DescribeConfigsResponse::default().with_results(vec![of_broker])
}

/// [KSK-21] an answer that is cut, longer, or damaged anywhere is refused or read; never a panic, and no memory for what is
/// not there.
#[test]
fn layouts_fit_what_the_codec_writes_in_every_version_that_is_spoken() {
    hold::<ApiVersionsRequest>(&versions());
    hold::<MetadataRequest>(&metadata());
    hold::<FindCoordinatorRequest>(&coordinators());
    hold::<DescribeTransactionsRequest>(&described());
    hold::<ListTransactionsRequest>(&listed());
    hold::<DescribeProducersRequest>(&producers());
    hold::<EndTxnRequest>(&EndTxnResponse::default());
    hold::<AddOffsetsToTxnRequest>(&AddOffsetsToTxnResponse::default());
    hold::<TxnOffsetCommitRequest>(&marked());
    hold::<WriteTxnMarkersRequest>(&completed());
    hold::<InitProducerIdRequest>(&InitProducerIdResponse::default());
    hold::<OffsetFetchRequest>(&offsets());
    hold::<DescribeConfigsRequest>(&settings());
}

/// [KSK-21] five bytes that ask for the memory of four thousand million elements.
#[test]
fn array_that_is_not_there_is_refused_before_memory_is_taken_for_it() {
    let endless = Bytes::from_static(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    check(&MetadataRequest::LAYOUT, 12, &endless).expect_err("no element is there");
    let of_old = Bytes::from_static(&[0, 0, 0x7f, 0xff, 0xff, 0xff]);
    check(&ApiVersionsRequest::LAYOUT, 0, &of_old).expect_err("no element is there");
}

proptest! {
    /// [KSK-21]
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Bytes::from(bytes);
        read_if_checked::<ApiVersionsRequest>(3, bytes.clone());
        read_if_checked::<ApiVersionsRequest>(0, bytes.clone());
        read_if_checked::<MetadataRequest>(12, bytes.clone());
        read_if_checked::<FindCoordinatorRequest>(4, bytes.clone());
        read_if_checked::<DescribeTransactionsRequest>(0, bytes.clone());
        read_if_checked::<ListTransactionsRequest>(1, bytes.clone());
        read_if_checked::<DescribeProducersRequest>(0, bytes.clone());
        read_if_checked::<OffsetFetchRequest>(9, bytes.clone());
        read_if_checked::<DescribeConfigsRequest>(4, bytes);
    }
}
