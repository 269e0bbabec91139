//! Commits whose answer does not come.

use std::sync::Arc;

use levada_testcontainers::{Action, Direction, Kafka, Trigger};

use super::coordinator::Coordinator;
use super::prepared::{Attempt, resolver};
use super::support::{PATIENCE, Topic};

/// [KSK-25] [KSK-09] [KSK-26] EndTxn is carried out, and the connection is cut before its answer comes. The commit is sent again,
/// succeeds, and nothing is doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_whose_answer_is_lost_is_sent_again_and_done_once() {
    lose_answers(&[("cut", Action::Cut), ("cut again", Action::Cut)]).await;
}

/// [KSK-25] [KSK-09] [KSK-26] the same when the broker is killed before it answers, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_a_killed_broker_does_not_answer_is_sent_again_and_done_once() {
    lose_answers(&[("cut", Action::Cut), ("restarted", Action::Hold)]).await;
}

async fn lose_answers(losses: &[(&str, Action)]) {
    let kafka = Kafka::builder().behind_cut().start().expect("a broker");
    let cut = kafka.broker(1).cut().expect("a proxy");
    let topic = Topic::at(kafka.bootstrap(), 1, &[]).await;
    // Only what resolves goes through the proxy.
    let resolver = Arc::new(resolver(&topic, &kafka.bootstrap_behind_cut().expect("a proxy")));
    let coordinator = Coordinator::at(kafka.bootstrap());
    let mut attempt = Attempt::open(&topic, 1).await;
    for &(value, lost_by) in losses {
        let handle = attempt.prepare(value).await;
        // The coordinator is known from here on, so the next request that names the id is the commit.
        resolver.inspect(std::slice::from_ref(&handle)).await.expect("an answer");
        let sent = cut.when(Direction::ToServer, Trigger::after(&handle.transactional_id), Action::Hold);
        let (committing, of) = (Arc::clone(&resolver), handle.clone());
        let commit = tokio::spawn(async move { committing.commit(&of).await });
        sent.wait(PATIENCE).expect("the commit goes out");
        let lost = cut.when(Direction::ToClient, Trigger::after_bytes(0), lost_by);
        cut.release();
        lost.wait(PATIENCE).expect("the answer comes");
        let carried_out = coordinator.ask(&handle.transactional_id).await.expect("known");
        assert!(carried_out.state.ends_with("Commit"), "{carried_out:?}");
        if lost_by == Action::Hold {
            kafka.broker(1).kill();
            cut.cut_all();
            cut.heal();
            kafka.broker(1).restart().expect("it comes back");
        }
        commit.await.expect("no panic").expect("sent again");
        coordinator.until(&handle.transactional_id, "CompleteCommit").await;
    }
    let expected: Vec<_> = losses.iter().map(|(value, _)| *value).collect();
    assert_eq!(topic.texts_once_there_are(expected.len()), expected);
}
