//! Three brokers: what moves when one of them is killed.

use std::collections::BTreeSet;

use levada_kafka::protocol::{Ending, State, TransactionAdmin as _};
use levada_testcontainers::{Kafka, unique_name};

use super::support::{PATIENCE, client, committed, described, key, leave_open, topic, until_state};

/// [KSK-17] the transactions of all three are listed, whoever coordinates them; [KSK-09] [KSK-26] a coordinator that is
/// killed is found again, and what it had in its log is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_are_listed_on_every_broker_and_committed_when_a_coordinator_was_killed() {
    let kafka = Kafka::builder().brokers(3).start().expect("three brokers");
    let bootstrap = kafka.bootstrap();
    let topic = topic(bootstrap, 1).await;
    let client = client(bootstrap);
    let prefix = unique_name("foo");
    // More than enough for each of the four partitions of the coordinators' log.
    let ids: Vec<String> = (0..12).map(|number| format!("{prefix}-{number}")).collect();
    for id in &ids[..11] {
        client.fence(id, PATIENCE, PATIENCE).await.expect("an id");
    }
    leave_open(bootstrap, &ids[11], &topic, &[(0, "a")]);
    let mut coordinators = BTreeSet::new();
    for id in &ids {
        coordinators.insert(client.find_coordinator(id, PATIENCE).await.expect("found"));
    }
    assert!(coordinators.len() > 1, "all at one broker: nothing to prove");

    let listed = async |states: &[State]| -> BTreeSet<String> {
        let listed = client.list(states, PATIENCE).await.expect("list");
        let ids = listed.into_iter().map(|listed| listed.transactional_id);
        ids.filter(|id| id.starts_with(&prefix)).collect()
    };
    assert_eq!(listed(&[]).await, ids.iter().cloned().collect());
    assert_eq!(listed(&[State::Ongoing]).await, [ids[11].clone()].into());
    assert_eq!(listed(&[State::Empty]).await, ids[..11].iter().cloned().collect());

    let open = described(&client, &ids[11]).await.expect("known");
    let coordinator = client.find_coordinator(&ids[11], PATIENCE).await.expect("found");
    let victim = usize::try_from(coordinator).expect("a broker");
    kafka.broker(victim).kill();
    client.end(key(&ids[11], open.identity), Ending::Commit, PATIENCE).await.expect("commit");
    assert_ne!(client.find_coordinator(&ids[11], PATIENCE).await.expect("found"), coordinator);
    until_state(&client, &ids[11], State::CompleteCommit).await;
    assert_eq!(committed(bootstrap, &topic, 0), ["a"]);
    // Of all of them still, by the two that are left.
    assert_eq!(listed(&[]).await, ids.iter().cloned().collect());
    assert_eq!(client.check_brokers(PATIENCE).await.expect("the cluster").brokers.len(), 2);
}
