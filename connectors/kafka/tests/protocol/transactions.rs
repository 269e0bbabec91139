//! Transactions that nobody has a producer for any more.

use std::time::Duration;

use levada_kafka::protocol::{Ending, ErrorCode, Identity, ProtocolError, State, TransactionAdmin as _};
use levada_testcontainers::{Kafka, unique_name};
use rdkafka::producer::Producer as _;

use super::support::{
    LONG, PATIENCE, client, committed, described, key, leave_open, shared, topic, until_state, write, writer,
};

/// [KSK-09] [KSK-21] the reason why all this is here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_of_a_lost_producer_is_described_and_committed() {
    let (bootstrap, id) = (shared(), unique_name("tx"));
    let topic = topic(&bootstrap, 3).await;
    let client = client(&bootstrap);
    assert_eq!(described(&client, &id).await, None, "an id that never was");
    leave_open(&bootstrap, &id, &topic, &[(0, "a"), (2, "b"), (0, "c")]);

    let open = described(&client, &id).await.expect("known");
    assert_eq!(open.state, State::Ongoing);
    assert!(open.identity.producer_id >= 0 && open.identity.epoch == 0, "{open:?}");
    assert_eq!(open.partitions, [(topic.clone(), [0, 2].into())].into());
    assert_eq!(open.timeout, LONG);
    assert!(open.start.is_some());
    assert!(committed(&bootstrap, &topic, 0).is_empty());

    client.end(key(&id, open.identity), Ending::Commit, PATIENCE).await.expect("commit");
    let over = until_state(&client, &id, State::CompleteCommit).await;
    assert_eq!(over.identity, open.identity, "the epoch is the same");
    assert_eq!(committed(&bootstrap, &topic, 0), ["a", "c"]);
    assert_eq!(committed(&bootstrap, &topic, 2), ["b"]);

    client.end(key(&id, open.identity), Ending::Commit, PATIENCE).await.expect("committed before");
    assert_eq!(committed(&bootstrap, &topic, 0), ["a", "c"]);
    let late = client.end(key(&id, open.identity), Ending::Abort, PATIENCE).await.expect_err("too late");
    assert_eq!(late.code(), Some(ErrorCode::INVALID_TXN_STATE), "{late}");
}

/// [KSK-09]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_transaction_is_not_seen_and_cannot_be_committed() {
    let (bootstrap, id) = (shared(), unique_name("tx"));
    let topic = topic(&bootstrap, 1).await;
    leave_open(&bootstrap, &id, &topic, &[(0, "a")]);
    let client = client(&bootstrap);
    let open = described(&client, &id).await.expect("known").identity;
    client.end(key(&id, open), Ending::Abort, PATIENCE).await.expect("abort");
    client.end(key(&id, open), Ending::Abort, PATIENCE).await.expect("aborted before");
    let over = until_state(&client, &id, State::CompleteAbort).await;
    assert_eq!(over.identity, open);
    let late = client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect_err("gone");
    assert_eq!(late.code(), Some(ErrorCode::INVALID_TXN_STATE));
    assert!(late.to_string().contains("INVALID_TXN_STATE (48)") && late.to_string().contains(&id), "{late}");
    assert!(committed(&bootstrap, &topic, 0).is_empty());
}

/// [KSK-09] what the broker has dropped cannot be committed, and says so by its epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_timed_out_is_aborted_under_the_next_epoch_and_refused() {
    let often = "transaction.abort.timed.out.transaction.cleanup.interval.ms";
    let kafka = Kafka::builder().property(often, "200").start().expect("a broker");
    let (bootstrap, id) = (kafka.bootstrap(), unique_name("tx"));
    let topic = topic(bootstrap, 1).await;
    let client = client(bootstrap);
    let producer = writer(bootstrap, &id, Duration::from_secs(5));
    let warm = described(&client, &id).await.expect("known");
    assert_eq!((warm.state, warm.start, warm.identity.epoch), (State::Empty, None, 0));
    write(&producer, &topic, &[(0, "a")]);
    let over = until_state(&client, &id, State::CompleteAbort).await;
    let next = Identity { epoch: warm.identity.epoch + 1, ..warm.identity };
    assert_eq!(over.identity, next);
    let late = client.end(key(&id, warm.identity), Ending::Commit, PATIENCE).await.expect_err("gone");
    let is_fenced =
        [Some(ErrorCode::PRODUCER_FENCED), Some(ErrorCode::INVALID_PRODUCER_EPOCH)].contains(&late.code());
    assert!(is_fenced && late.to_string().contains("PRODUCER"), "{late}");
    assert!(committed(bootstrap, &topic, 0).is_empty());
}

/// [KSK-09] a handle names one transaction and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_epoch_unknown_producer_and_unknown_id_are_refused_by_name() {
    let (bootstrap, id) = (shared(), unique_name("tx"));
    let topic = topic(&bootstrap, 1).await;
    let client = client(&bootstrap);
    drop(writer(&bootstrap, &id, LONG));
    let stale = described(&client, &id).await.expect("known").identity;
    leave_open(&bootstrap, &id, &topic, &[(0, "a")]);
    let open = described(&client, &id).await.expect("known").identity;
    assert!(open.epoch > stale.epoch);
    let foreign = Identity { producer_id: open.producer_id + 1_000_000, ..open };
    let refused = async |id: &str, identity| {
        let error = client.end(key(id, identity), Ending::Commit, PATIENCE).await.expect_err("refused");
        assert!(matches!(error, ProtocolError::Refused { .. }), "{error:?}");
        error.code()
    };
    assert_eq!(refused(&id, stale).await, Some(ErrorCode::PRODUCER_FENCED));
    assert_eq!(refused(&id, foreign).await, Some(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    assert_eq!(refused(&unique_name("never"), open).await, Some(ErrorCode::INVALID_PRODUCER_ID_MAPPING));
    let still = described(&client, &id).await.expect("known");
    assert_eq!((still.state, still.identity), (State::Ongoing, open), "nothing of that did anything");
    client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect("commit");
}

/// Why an empty transaction has no handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_without_a_record_cannot_be_ended() {
    let (bootstrap, id) = (shared(), unique_name("tx"));
    let client = client(&bootstrap);
    let producer = writer(&bootstrap, &id, LONG);
    producer.begin_transaction().expect("begin");
    let empty = described(&client, &id).await.expect("known");
    assert_eq!(empty.state, State::Empty);
    let error = client.end(key(&id, empty.identity), Ending::Commit, PATIENCE).await.expect_err("empty");
    assert_eq!(error.code(), Some(ErrorCode::INVALID_TXN_STATE));
}

/// [KSK-21] a left-over transaction is ended by a new epoch, and its producer is shut out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_aborts_what_is_open_and_shuts_its_producer_out() {
    let (bootstrap, id) = (shared(), unique_name("tx"));
    let topic = topic(&bootstrap, 1).await;
    let client = client(&bootstrap);
    let producer = writer(&bootstrap, &id, LONG);
    write(&producer, &topic, &[(0, "a")]);
    let open = described(&client, &id).await.expect("known").identity;
    let fenced = client.fence(&id, LONG, PATIENCE).await.expect("fence");
    assert_eq!(fenced.producer_id, open.producer_id);
    assert!(fenced.epoch > open.epoch);
    let now = described(&client, &id).await.expect("known");
    assert_eq!((now.state, now.identity), (State::Empty, fenced));
    producer.commit_transaction(PATIENCE).expect_err("shut out");
    assert!(committed(&bootstrap, &topic, 0).is_empty());
    let error = client.fence(&id, Duration::from_secs(86_400), PATIENCE).await.expect_err("too long");
    assert_eq!(error.code(), Some(ErrorCode::INVALID_TRANSACTION_TIMEOUT));
    assert!(chain_names(&error, &id), "{error}");
}

fn chain_names(error: &ProtocolError, id: &str) -> bool {
    super::support::chain(error).contains(id)
}

/// Many ids in one question, known and unknown ones; and none at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_ids_are_described_in_one_call() {
    let bootstrap = shared();
    let client = client(&bootstrap);
    let known: Vec<String> = (0..5).map(|_| unique_name("tx")).collect();
    for id in &known {
        client.fence(id, LONG, PATIENCE).await.expect("an id");
    }
    let never = unique_name("never");
    let mut ids: Vec<&str> = known.iter().map(String::as_str).collect();
    ids.extend([&*never, &*never]);
    let told = client.describe(&ids, PATIENCE).await.expect("describe");
    assert_eq!(told.len(), 6);
    assert!(known.iter().all(|id| told[id].as_ref().is_some_and(|told| told.state == State::Empty)));
    assert_eq!(told[&never], None);
    assert!(client.describe(&[], PATIENCE).await.expect("nothing").is_empty());
}
