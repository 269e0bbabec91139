//! What a start does about transactions that an earlier run has prepared.

use std::time::Duration;

use levada_core::template::Fate;
use levada_kafka::protocol::{Ending, State};
use levada_kafka::sink::writer::{Decided, TornPolicy, TransactionHandle, WriterError};

use super::support::{Topic, both};

/// Three transactions of a run that ends there.
async fn left(topic: &Topic) -> Vec<TransactionHandle> {
    let mut writer = topic.started().await;
    let mut handles = Vec::new();
    for value in ["a", "b", "c"] {
        handles.push(topic.prepared(&mut writer, value).await);
    }
    handles
}

/// [KSK-28] [KSK-11] what was prepared is committed by whoever has the handles, and again changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_transactions_are_committed_at_the_next_start() {
    let topic = Topic::new().await;
    let mut handles = left(&topic).await;
    // Somebody was at it already.
    topic.end(&handles[0], Ending::Commit).await;
    handles.reverse();
    for (attempt, before) in [(2, 1), (3, 3), (4, 3)] {
        let resolution = topic.writer(attempt).resolve(&handles).await.expect("resolved");
        assert_eq!(
            resolution.to_string(),
            format!("3 transactions with 6 records committed, {before} of them before")
        );
        assert_eq!((resolution.decided, resolution.lost().count()), (Decided::Committed, 0));
        assert_eq!(topic.read().await, both(&["a", "b", "c"]));
    }
}

/// [KSK-28] [KSK-13] one is gone and none visible: all are rolled back, also when a start died in the middle of that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_gone_rolls_all_back() {
    let topic = Topic::new().await;
    let handles = left(&topic).await;
    topic.fence(&handles[1]).await;
    topic.end(&handles[2], Ending::Abort).await;
    for (attempt, gone) in [(2, 2), (3, 3)] {
        let mut writer = topic.writer(attempt);
        let resolution = writer.resolve(&handles).await.expect("resolved");
        assert_eq!(
            resolution.to_string(),
            format!("3 transactions with 6 records rolled back: {gone} were gone, 0 too near their timeout")
        );
        assert_eq!(resolution.found[1].1, Fate::Aborted);
    }
    let mut writer = topic.writer(4);
    writer.resolve(&handles).await.expect("resolved");
    let again = topic.prepared(&mut writer, "again").await;
    writer.commit(&again).await.expect("committed");
    assert_eq!(topic.read().await, both(&["again"]));
}

/// [KSK-28] [KSK-13] too near the timeout counts as gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_too_near_their_timeout_are_rolled_back() {
    let topic = Topic::new().await;
    let handles = left(&topic).await;
    // They have 15 min.
    let mut hasty = topic.writer(2).margin(Duration::from_secs(3_600));
    let resolution = hasty.resolve(&handles).await.expect("resolved");
    assert_eq!(
        resolution.to_string(),
        "3 transactions with 6 records rolled back: 0 were gone, 3 too near their timeout"
    );
    assert_eq!(topic.read().await.len(), 0);
}

/// [KSK-28] [KSK-14] some visible, some gone: an error that names each, and by policy either way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_transactions_stop_the_start_unless_a_policy_says_how_to_go_on() {
    for policy in [TornPolicy::Duplicate, TornPolicy::Lose] {
        let topic = Topic::new().await;
        let handles = left(&topic).await;
        topic.end(&handles[0], Ending::Commit).await;
        topic.end(&handles[1], Ending::Abort).await;
        let torn = topic.writer(2).resolve(&handles).await.expect_err("torn");
        let text = torn.to_string();
        assert!(text.contains(&format!("1 are visible ({})", handles[0])), "{text}");
        assert!(text.contains(&format!("1 gone ({})", handles[1])), "{text}");
        assert_eq!(
            topic.state(&handles[2].transactional_id).await,
            Some(State::Ongoing),
            "nothing is changed"
        );
        let resolution = topic.writer(2).when_torn(policy).resolve(&handles).await.expect("by policy");
        let (decided, lost, doubled, seen) = match policy {
            TornPolicy::Lose => (Decided::Committed, vec![&handles[1]], vec![], both(&["a", "c"])),
            _ => (Decided::RolledBack, vec![], vec![&handles[0]], both(&["a"])),
        };
        assert_eq!(resolution.decided, decided);
        assert_eq!(resolution.lost().collect::<Vec<_>>(), lost);
        assert_eq!(resolution.doubled().collect::<Vec<_>>(), doubled);
        assert_eq!(topic.read().await, seen);
    }
}

/// [KSK-28] [KSK-15] what nobody tells is an error, and nothing is changed; no policy goes past it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handle_of_another_cluster_stops_the_start() {
    let topic = Topic::new().await;
    let mut handles = left(&topic).await;
    handles[1].cluster_id = "another".to_owned();
    for policy in [TornPolicy::Fail, TornPolicy::Duplicate, TornPolicy::Lose] {
        let unknown = topic.writer(2).when_torn(policy).resolve(&handles).await.expect_err("nobody tells");
        let is_named = |error: &WriterError| match error {
            WriterError::Unknown { transactions } => transactions == &handles[1..2],
            _ => false,
        };
        assert!(is_named(&unknown), "{unknown:?}");
    }
    for handle in &handles {
        assert_eq!(topic.state(&handle.transactional_id).await, Some(State::Ongoing));
    }
}

/// [KSK-28] [KSK-12] a start that dies in the middle, at whatever step, is gone on with by the next one: each is dropped a step
/// later than the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_that_is_dropped_at_any_step_is_gone_on_with() {
    for (end, expected) in [(None, both(&["a", "b", "c"])), (Some(Ending::Abort), vec![])] {
        let topic = Topic::new().await;
        let handles = left(&topic).await;
        if let Some(end) = end {
            topic.end(&handles[1], end).await;
        }
        let mut steps = 0;
        // No slot is made ready before the end of a start, so the attempt may be the same.
        let resolution = loop {
            let mut writer = topic.writer(2);
            let mut resolve = Box::pin(writer.resolve(&handles));
            if let Some(resolved) = stepped(&mut resolve, steps).await {
                break resolved.expect("resolved");
            }
            steps += 1;
        };
        assert!(steps > 5, "{steps} steps: it was never interrupted in the middle");
        let decided = if end.is_none() { Decided::Committed } else { Decided::RolledBack };
        assert_eq!(resolution.decided, decided);
        assert_eq!(topic.read().await, expected);
    }
}

/// Drives a future until it has been woken so many times. `None`: it is not ready by then.
async fn stepped<F: Future + Unpin>(future: &mut F, steps: usize) -> Option<F::Output> {
    let mut polls = 0;
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut *future).poll(context);
        polls += 1;
        match polled {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending if polls > steps => std::task::Poll::Ready(None),
            std::task::Poll::Pending => std::task::Poll::Pending,
        }
    })
    .await
}
