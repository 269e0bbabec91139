//! What earlier attempts have left behind.

use super::coordinator::Coordinator;
use super::prepared::{Attempt, leave_open};
use super::support::Topic;

/// [KSK-17] [KSK-25] left-overs of a crash before the first checkpoint, and of subtasks and slots that there are no more, are
/// aborted at a start; those of neighbours whose names begin alike, of later attempts, and what a handle names are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_aborts_what_earlier_attempts_have_left_and_nobody_elses() {
    let topic = Topic::new(1).await;
    let kept = Attempt::open(&topic, 2).await.prepare("kept").await;
    let id = |tail: &str| format!("{}{tail}", topic.name);
    // Before the first checkpoint; of a higher parallelism; of a pool of slots that had grown.
    let ours = [id(".delays.out.a1.s0.t0"), id(".delays.out.a1.s7.t1"), id(".delays.out.a2.s0.t65999")];
    let others = [
        id("-bar.delays.out.a1.s0.t0"),
        id(".delays-2.out.a1.s0.t0"),
        id(".delays.out-2.a1.s0.t0"),
        id(".more.delays.out.a1.s0.t0"),
        id(".delays.out.a4.s0.t0"),
    ];
    ours.iter().chain(&others).for_each(|id| leave_open(&topic, id));
    // Nothing below it can be read.
    assert!(topic.read().is_empty());

    let mut next = Attempt::open(&topic, 3).await;
    next.fence(std::slice::from_ref(&kept)).await;
    let coordinator = Coordinator::at(&topic.bootstrap);
    for id in &ours {
        let found = coordinator.ask(id).await.expect("known");
        assert_ne!(found.state, "Ongoing", "{id}");
        assert!(found.identity.epoch > 0, "{id}: whoever holds it is shut out");
    }
    for id in others.iter().chain([&kept.transactional_id]) {
        assert_eq!(coordinator.ask(id).await.expect("known").state, "Ongoing", "{id}");
    }
    next.commit(&kept).await;
    coordinator.until(&kept.transactional_id, "CompleteCommit").await;
    assert_eq!(topic.read().len(), 1, "{:?}", topic.read());
}

/// [KSK-17] [KSK-08] a transaction into which nothing was written leaves its id and epoch to the next one. Its handle is in the
/// checkpoint, and spares nothing: what the crash has left open under the id is aborted, and readers get past it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handle_of_an_empty_transaction_spares_nothing() {
    let topic = Topic::new(1).await;
    let mut crashed = Attempt::open(&topic, 2).await;
    let empty = crashed.prepare_nothing().await;
    let open = crashed.begin("left").await;
    assert_eq!((&empty.transactional_id, empty.epoch), (&open.transactional_id, open.epoch));
    let coordinator = Coordinator::at(&topic.bootstrap);
    coordinator.until(&open.transactional_id, "Ongoing").await;
    drop(crashed);

    let mut next = Attempt::open(&topic, 3).await;
    next.fence(std::slice::from_ref(&empty)).await;
    let found = coordinator.ask(&open.transactional_id).await.expect("known");
    assert_ne!(found.state, "Ongoing");
    next.commit(&empty).await;
    let behind = next.prepare("behind").await;
    next.commit(&behind).await;
    assert_eq!(topic.texts_once_there_are(1), ["behind"]);
}

/// [KSK-18] the same handle touches nothing of the next transaction of its epoch, when it is committed or rolled back late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handle_of_an_empty_transaction_touches_nothing_of_the_next_one() {
    let topic = Topic::new(1).await;
    let mut attempt = Attempt::open(&topic, 2).await;
    let empty = attempt.prepare_nothing().await;
    let next = attempt.prepare("next").await;
    assert_eq!((&empty.transactional_id, empty.epoch), (&next.transactional_id, next.epoch));
    attempt.commit(&empty).await;
    let coordinator = Coordinator::at(&topic.bootstrap);
    assert_eq!(coordinator.ask(&next.transactional_id).await.expect("known").state, "Ongoing");
    attempt.commit(&next).await;
    coordinator.until(&next.transactional_id, "CompleteCommit").await;
    // A start that goes back behind it rolls it back, and it has nothing to roll back.
    Attempt::open(&topic, 3).await.abort(&empty).await;
    assert_eq!(topic.texts_once_there_are(1), ["next"]);
}
