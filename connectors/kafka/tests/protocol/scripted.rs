//! What is agreed on with brokers of other versions, and what is done about refusals that pass.

use std::time::Duration;

use kafka_protocol::messages::list_transactions_response::TransactionState;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, EndTxnRequest, EndTxnResponse, InitProducerIdResponse, ListTransactionsResponse,
};
use kafka_protocol::messages::{BrokerId, MetadataResponse, TopicName};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use levada_kafka::protocol::{
    Ending, Identity, ProtocolClient, ProtocolError, State, TransactionAdmin as _, VersionSpan,
};

use super::peer::{Asked, Peer, Reply, all_spoken, encoded, versions, way_in};
use super::support::{PATIENCE, client, key};

const OPEN: Identity = Identity { producer_id: 7, epoch: 3 };

async fn end(client: &ProtocolClient, ending: Ending) -> Result<(), ProtocolError> {
    client.end(key("id", OPEN), ending, PATIENCE).await
}

/// [KSK-09] version 4 at most, also where the broker speaks 5; [KSK-21] and never one that is not stable.
#[tokio::test]
async fn transactions_are_ended_in_version_four_at_most() {
    for (theirs, ours) in [((0, 5), 4), ((0, 4), 4), ((0, 3), 3), ((0, 2), 2), ((0, 0), 0)] {
        let peer = Peer::start(move |port, asked| match asked.api {
            ApiKey::ApiVersions => {
                let mut spoken = all_spoken();
                spoken.insert(ApiKey::EndTxn as i16, theirs);
                Reply::Answer(encoded(&versions(&spoken), asked.version))
            }
            ApiKey::EndTxn => {
                let request =
                    EndTxnRequest::decode(&mut asked.body.clone(), asked.version).expect("a request");
                assert_eq!((request.producer_id.0, request.producer_epoch), (OPEN.producer_id, OPEN.epoch));
                assert!(request.committed && request.transactional_id.as_str() == "id");
                Reply::Answer(encoded(&EndTxnResponse::default(), asked.version))
            }
            ApiKey::InitProducerId => Reply::Answer(encoded(
                &InitProducerIdResponse::default().with_producer_epoch(4),
                asked.version,
            )),
            _ => way_in(port, asked).expect("a way in"),
        })
        .await;
        let client = client(&peer.address);
        end(&client, Ending::Commit).await.expect("commit");
        assert_eq!(peer.asked(ApiKey::EndTxn), [ours], "of {theirs:?}");
        assert_eq!(client.fence("id", PATIENCE, PATIENCE).await.expect("fence").epoch, 4);
        assert_eq!(peer.asked(ApiKey::InitProducerId), [5]);
        assert_eq!((peer.asked(ApiKey::Metadata), peer.asked(ApiKey::FindCoordinator)), (vec![], vec![6]));
    }
}

/// [KSK-21] a broker that does not know the newest question about versions is asked the oldest.
#[tokio::test]
async fn old_broker_is_asked_for_its_versions_in_the_oldest_way() {
    let peer = Peer::start(|port, asked| match (asked.api, asked.version) {
        (ApiKey::ApiVersions, 0) => Reply::Answer(encoded(&versions(&all_spoken()), 0)),
        // In the oldest version too, whatever was asked.
        (ApiKey::ApiVersions, _) => Reply::Answer(encoded(&versions(&all_spoken()).with_error_code(35), 0)),
        _ => way_in(port, asked).expect("a way in"),
    })
    .await;
    let cluster = client(&peer.address).check_brokers(PATIENCE).await.expect("it speaks all");
    assert_eq!(cluster.id, "scripted");
    assert_eq!(peer.asked(ApiKey::ApiVersions), [3, 0]);
}

/// [KSK-21] a broker that is too old is refused by name, at once.
#[tokio::test]
async fn request_that_a_broker_does_not_speak_is_named_with_what_needs_it() {
    let cases = [
        (
            ApiKey::DescribeTransactions,
            None,
            "speaks no version of DescribeTransactions; telling whether a transaction waits",
        ),
        (ApiKey::OffsetFetch, Some((0, 7)), "needs versions 8 to 9"),
        (ApiKey::Metadata, Some((13, 14)), "speaks versions 13 to 14 of Metadata; finding brokers"),
    ];
    for (api, theirs, expected) in cases {
        let peer = Peer::start(move |port, asked| match asked.api {
            ApiKey::ApiVersions => {
                let mut spoken = all_spoken();
                spoken.remove(&(api as i16));
                spoken.extend(theirs.map(|theirs| (api as i16, theirs)));
                Reply::Answer(encoded(&versions(&spoken), asked.version))
            }
            _ => way_in(port, asked).expect("a way in"),
        })
        .await;
        let error = client(&peer.address).check_brokers(PATIENCE).await.expect_err("too old");
        let told = theirs.map(|(min, max)| VersionSpan { min, max });
        assert!(matches!(&error, ProtocolError::Unsupported { theirs, .. } if *theirs == told), "{error:?}");
        assert!(error.to_string().contains(expected) && error.to_string().contains(&peer.address), "{error}");
    }
}

/// [KSK-09] 14, 15, 16 and 51 pass: the same request again, at the coordinator as it is found then.
#[tokio::test]
async fn refusals_that_pass_are_tried_again_and_a_moved_coordinator_is_looked_for() {
    let codes = [51, 14, 16, 15, 51, 0];
    let peer = Peer::start(move |port, asked| match asked.api {
        ApiKey::EndTxn => {
            let answer = EndTxnResponse::default().with_error_code(codes[asked.before]);
            Reply::Answer(encoded(&answer, asked.version))
        }
        _ => way_in(port, asked).expect("a way in"),
    })
    .await;
    end(&client(&peer.address), Ending::Abort).await.expect("abort");
    assert_eq!(peer.asked(ApiKey::EndTxn).len(), codes.len());
    assert_eq!(peer.asked(ApiKey::FindCoordinator).len(), 3, "at first, and behind 16 and 15");
    assert_eq!(peer.asked(ApiKey::ApiVersions).len(), 1, "on one connection");
}

/// [KSK-09] 47, 48, 49, 53 and 90 do not pass.
#[tokio::test]
async fn final_refusals_are_not_tried_again() {
    for code in [47, 48, 49, 53, 90] {
        let peer = Peer::start(move |port, asked| match asked.api {
            ApiKey::EndTxn => {
                Reply::Answer(encoded(&EndTxnResponse::default().with_error_code(code), asked.version))
            }
            _ => way_in(port, asked).expect("a way in"),
        })
        .await;
        let error = end(&client(&peer.address), Ending::Commit).await.expect_err("refused");
        assert_eq!(error.code().map(|code| code.0), Some(code));
        assert_eq!(peer.asked(ApiKey::EndTxn).len(), 1, "{error}");
    }
}

/// The log of coordinators, with one partition, in an epoch of its leader.
fn coordination(port: u16, epoch: i32, version: i16) -> Reply {
    let broker = MetadataResponseBroker::default().with_node_id(BrokerId(1)).with_port(i32::from(port));
    let broker = broker.with_host(StrBytes::from_static_str("127.0.0.1"));
    let partition = MetadataResponsePartition::default().with_leader_id(BrokerId(1)).with_leader_epoch(epoch);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str("__transaction_state"))))
        .with_partitions(vec![partition]);
    let answer = MetadataResponse::default().with_brokers(vec![broker]).with_topics(vec![topic]);
    Reply::Answer(encoded(&answer, version))
}

/// [KSK-17] what moved behind the back of a round may have been missed by it.
#[tokio::test]
async fn list_goes_round_again_when_coordinators_moved_meanwhile() {
    let listed = |asked: &Asked| {
        // What is there from the second round on.
        let moved = TransactionState::default().with_transaction_state(StrBytes::from_static_str("Ongoing"));
        let states = if asked.before == 0 { vec![] } else { vec![moved] };
        let answer = ListTransactionsResponse::default().with_transaction_states(states);
        Reply::Answer(encoded(&answer, asked.version))
    };
    let peer = Peer::start(move |port, asked| match asked.api {
        ApiKey::Metadata => coordination(port, i32::from(asked.before > 0), asked.version),
        ApiKey::ListTransactions => listed(asked),
        _ => way_in(port, asked).expect("a way in"),
    })
    .await;
    let listed = client(&peer.address).list(&[], PATIENCE).await.expect("list");
    assert_eq!((listed.len(), peer.asked(ApiKey::ListTransactions).len()), (1, 2));
}

/// [KSK-21] states that the protocol has no name for cannot be asked for: without a filter, all would be listed.
#[tokio::test]
async fn list_of_a_state_without_a_name_is_refused() {
    let peer = Peer::start(|port, asked| way_in(port, asked).expect("a way in")).await;
    let error = client(&peer.address).list(&[State::Other], PATIENCE).await.expect_err("no such state");
    assert!(matches!(error, ProtocolError::Unencodable { .. }), "{error:?}");
}

/// [KSK-17] a list that is not whole is an error.
#[tokio::test]
async fn list_fails_where_a_broker_says_no() {
    for (code, is_final) in [(31, true), (14, false)] {
        let peer = Peer::start(move |port, asked| match asked.api {
            ApiKey::Metadata => coordination(port, 0, asked.version),
            ApiKey::ListTransactions => {
                let answer = ListTransactionsResponse::default().with_error_code(code);
                Reply::Answer(encoded(&answer, asked.version))
            }
            _ => way_in(port, asked).expect("a way in"),
        })
        .await;
        let error = client(&peer.address).list(&[], Duration::from_secs(2)).await.expect_err("not whole");
        assert_eq!(error.code().map(|code| code.0), Some(code));
        assert_eq!(matches!(error, ProtocolError::Refused { .. }), is_final, "{error:?}");
    }
}

/// A client that is closed, or dropped, lets go of its connections; a closed one goes on.
#[tokio::test]
async fn closed_client_has_no_connection_and_makes_new_ones() {
    let peer = Peer::start(|port, asked| way_in(port, asked).expect("a way in")).await;
    let client = client(&peer.address);
    client.cluster(&[], PATIENCE).await.expect("asked");
    client.close();
    peer.until_ended(1).await;
    client.cluster(&[], PATIENCE).await.expect("asked");
    drop(client);
    peer.until_ended(2).await;
    assert_eq!(peer.asked(ApiKey::ApiVersions).len(), 2);
}

/// A commit on a connection that the broker has closed meanwhile would end in doubt for nothing.
#[tokio::test]
async fn connection_that_was_closed_while_idle_is_not_used() {
    let peer = Peer::start(|port, asked| match asked.api {
        ApiKey::EndTxn => {
            let answer = encoded(&EndTxnResponse::default(), asked.version);
            if asked.before == 0 { Reply::Last(answer) } else { Reply::Answer(answer) }
        }
        _ => way_in(port, asked).expect("a way in"),
    })
    .await;
    let client = client(&peer.address);
    end(&client, Ending::Commit).await.expect("commit");
    peer.until_ended(1).await;
    end(&client, Ending::Commit).await.expect("commit on another one");
    assert_eq!((peer.asked(ApiKey::EndTxn).len(), peer.asked(ApiKey::ApiVersions).len()), (2, 2));
}
