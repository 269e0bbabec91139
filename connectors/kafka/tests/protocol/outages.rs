//! Brokers that stand still or go, and answers that get lost.

use std::time::{Duration, Instant};

use levada_kafka::protocol::{Ending, ProtocolClient, ProtocolError, State, TransactionAdmin as _};
use levada_testcontainers::{Action, Direction, Kafka, Trigger, unique_name};

use super::support::{
    PATIENCE, chain, client, committed, config, described, key, leave_open, topic, until_state,
};

/// [KSK-26] bounded waits, a clear error, and on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_holds_while_the_broker_stands_still() {
    let kafka = Kafka::start().expect("a broker");
    let (bootstrap, id) = (kafka.bootstrap(), unique_name("tx"));
    let topic = topic(bootstrap, 1).await;
    leave_open(bootstrap, &id, &topic, &[(0, "a")]);
    let impatient = config(bootstrap).patience(Duration::from_millis(300));
    let client = ProtocolClient::new(impatient).expect("a client");
    let open = described(&client, &id).await.expect("known").identity;

    kafka.pause().expect("pause");
    let started = Instant::now();
    let error = client.describe(&[&id], Duration::from_secs(2)).await.expect_err("nobody answers");
    assert!(matches!(error, ProtocolError::Deadline { .. }), "{error:?}");
    assert!(chain(&error).contains("did not answer"), "{}", chain(&error));
    let told = client.end(key(&id, open), Ending::Commit, Duration::from_secs(2)).await.expect_err("nobody");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    // The request lies in the broker's socket, or was not even sent: its coordinator could not be found.
    assert!(told.is_outcome_unknown() || matches!(told, ProtocolError::Deadline { .. }), "{told:?}");

    kafka.resume().expect("resume");
    client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect("commit");
    until_state(&client, &id, State::CompleteCommit).await;
    assert_eq!(committed(bootstrap, &topic, 0), ["a"]);
}

/// [KSK-09] the answer to a commit is lost: the client does not guess, and the coordinator knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_whose_answer_is_cut_off_has_an_unknown_outcome_until_it_is_described() {
    let kafka = Kafka::builder().behind_cut().start().expect("a broker");
    let (bootstrap, id) = (kafka.bootstrap_behind_cut().expect("a proxy"), unique_name("tx"));
    let cut = kafka.broker(1).cut().expect("a proxy");
    let topic = topic(kafka.bootstrap(), 1).await;
    leave_open(kafka.bootstrap(), &id, &topic, &[(0, "a")]);
    let client = client(&bootstrap);
    // The coordinator is known from here on, so the next request that names the id is the commit.
    let open = described(&client, &id).await.expect("known").identity;

    let sent = cut.when(Direction::ToServer, Trigger::after(&id), Action::Hold);
    let (committing, of) = (client.clone(), id.clone());
    let commit = tokio::spawn(async move { committing.end(key(&of, open), Ending::Commit, PATIENCE).await });
    sent.wait(PATIENCE).expect("the commit went out");
    let lost = cut.when(Direction::ToClient, Trigger::after_bytes(0), Action::Cut);
    cut.release();
    lost.wait(PATIENCE).expect("the answer came, and was cut off");
    let error = commit.await.expect("no panic").expect_err("no answer");
    assert!(error.is_outcome_unknown() && !error.is_retriable(), "{error:?}");
    assert!(
        chain(&error).contains(&id) && chain(&error).contains("may have been carried out"),
        "{}",
        chain(&error)
    );

    until_state(&client, &id, State::CompleteCommit).await;
    client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect("committed before");
    assert_eq!(committed(kafka.bootstrap(), &topic, 0), ["a"]);
}

/// [KSK-26] a broker that was restarted while nothing was asked: the commit goes out on a new connection, and its outcome is
/// known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_behind_a_restart_of_the_broker_has_a_known_outcome() {
    let kafka = Kafka::start().expect("a broker");
    let (bootstrap, id) = (kafka.bootstrap(), unique_name("tx"));
    let topic = topic(bootstrap, 1).await;
    leave_open(bootstrap, &id, &topic, &[(0, "a")]);
    let client = client(bootstrap);
    let open = described(&client, &id).await.expect("known").identity;
    kafka.broker(1).restart().expect("restart");
    client.end(key(&id, open), Ending::Commit, PATIENCE).await.expect("commit");
    until_state(&client, &id, State::CompleteCommit).await;
    assert_eq!(committed(bootstrap, &topic, 0), ["a"]);
}
