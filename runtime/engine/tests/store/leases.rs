//! [CHK-15] Who may append.

use std::time::Duration;

use levada_engine::store::{HEARTBEAT_INTERVAL, HEARTBEAT_LIMIT, StoreError, TakeOver};
use tokio::task::{JoinSet, yield_now};

use crate::places::{Place, complete, written};
use levada_core::CheckpointId;

/// [CHK-15]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_openers_exactly_one_gets_the_lease() {
    for place in Place::all().await {
        let mut openers = JoinSet::new();
        for number in 0..24 {
            let store = place.open().await;
            openers.spawn(
                async move { store.take_lease(&format!("job {number}"), TakeOver::IfAbandoned).await },
            );
        }
        let outcomes = openers.join_all().await;
        let winners: Vec<_> = outcomes.iter().flatten().map(|lease| lease.attempt()).collect();
        assert_eq!(winners, [1]);
        let refused = outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(StoreError::is_held));
        assert_eq!(refused.count(), 23);
        assert_eq!(place.open().await.log().await.unwrap().head, 1);
    }
}

/// [CHK-15] Many take over at once: each has a number of its own, and only the last can append.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_takeovers_only_the_last_can_append() {
    for place in Place::all().await {
        let mut openers = JoinSet::new();
        for _ in 0..12 {
            let store = place.open().await;
            openers.spawn(async move { store.take_lease("job", TakeOver::Always).await.unwrap() });
        }
        let mut leases = openers.join_all().await;
        leases.sort_by_key(|lease| lease.attempt());
        let attempts: Vec<_> = leases.iter().map(|lease| lease.attempt()).collect();
        assert_eq!(attempts, (1..=12).collect::<Vec<_>>());
        let mut last = leases.pop().unwrap();
        last.resolve(CheckpointId::new(12, 1)).await.unwrap();
        for mut lease in leases {
            assert!(lease.resolve(CheckpointId::new(1, 1)).await.unwrap_err().is_taken_over());
        }
    }
}

/// [CHK-15] An old attempt, paused with everything acknowledged and the entry not yet written, cannot finish.
#[tokio::test]
async fn a_checkpoint_that_was_acknowledged_before_a_takeover_cannot_be_completed_after_it() {
    for place in Place::all().await {
        let mut old = place.open_elsewhere("a").await.take_lease("job", TakeOver::default()).await.unwrap();
        complete(&mut old, 1).await;
        let acknowledged = written(old.store(), CheckpointId::new(old.attempt(), 2)).await;

        let new = place.open_elsewhere("b").await.take_lease("job", TakeOver::Always).await.unwrap();
        let error = old.complete(acknowledged.clone()).await.unwrap_err();
        let StoreError::TakenOver { number: 3, by: Some(by) } = &error else { panic!("{error:?}") };
        assert_eq!((by.host.as_str(), by.attempt), ("b", new.attempt()));
        assert!(old.complete(acknowledged).await.unwrap_err().is_taken_over(), "and not by trying again");
        let recovery = new.store().latest().await.unwrap();
        assert_eq!(recovery.newest.unwrap().id, CheckpointId::new(1, 1));
        assert!(recovery.log.damages.is_empty());
    }
}

/// [CHK-15]
#[tokio::test]
async fn a_holder_elsewhere_is_respected_until_its_heartbeat_is_old() {
    for place in Place::all().await {
        let old = place.open_elsewhere("a").await.take_lease("job a", TakeOver::default()).await.unwrap();
        let second = place.open_elsewhere("b").await;
        place.clock.advance(HEARTBEAT_INTERVAL);
        old.heartbeat().beat().await.unwrap();
        place.clock.advance(HEARTBEAT_LIMIT - Duration::from_millis(1));
        let error = second.take_lease("job b", TakeOver::IfAbandoned).await.unwrap_err();
        let StoreError::Held { by } = &error else { panic!("{error:?}") };
        assert_eq!(by.owner, "job a");
        assert!(error.to_string().contains("\"job a\" on a, process 7, attempt 1"), "{error}");
        place.clock.advance(Duration::from_millis(1));
        second.take_lease("job b", TakeOver::IfAbandoned).await.unwrap();
    }
}

/// [CHK-15] A holder that ended in good order keeps nobody waiting.
#[tokio::test]
async fn a_released_store_is_free_at_once() {
    for place in Place::all().await {
        let first = place.open().await.take_lease("job", TakeOver::IfAbandoned).await.unwrap();
        let second = place.open().await;
        assert!(second.take_lease("job", TakeOver::IfAbandoned).await.unwrap_err().is_held());
        first.release().await;
        assert_eq!(second.take_lease("job", TakeOver::IfAbandoned).await.unwrap().attempt(), 2);
    }
}

/// [CHK-15] The clock may say anything: only the number decides.
#[tokio::test]
async fn a_holder_that_was_taken_for_dead_is_fenced_all_the_same() {
    for place in Place::all().await {
        let mut old = place.open_elsewhere("a").await.take_lease("job", TakeOver::default()).await.unwrap();
        place.clock.advance(HEARTBEAT_LIMIT);
        let mut new = place.open_elsewhere("b").await.take_lease("job", TakeOver::IfAbandoned).await.unwrap();
        place.clock.advance(Duration::from_secs(3600));
        old.heartbeat().beat().await.unwrap();
        assert!(old.resolve(CheckpointId::new(1, 1)).await.unwrap_err().is_taken_over());
        complete(&mut new, 1).await;
    }
}

/// [CHK-15] Retention of the new holder does not give a number back that the old one may still try.
#[tokio::test]
async fn no_number_that_an_old_attempt_may_try_becomes_free_again() {
    for place in Place::all().await {
        let mut old = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        complete(&mut old, 1).await;
        let mut new = place.open().await.take_lease("job", TakeOver::Always).await.unwrap();
        for sequence in 1..9 {
            let id = complete(&mut new, sequence).await;
            new.resolve(id).await.unwrap();
            new.retain(2).await.unwrap();
        }
        let left: Vec<_> = new.store().log().await.unwrap().entries.iter().map(|e| e.number).collect();
        assert_eq!(left[..3], [1, 2, 3], "a lease, what is before a lease, a lease: {left:?}");
        assert!(left.len() < 12 && left[3] > 10, "{left:?}");
        assert!(old.resolve(CheckpointId::new(1, 1)).await.unwrap_err().is_taken_over());
    }
}

/// [CHK-15]
#[tokio::test(start_paused = true)]
async fn a_holder_beats_until_its_heartbeat_is_dropped() {
    let place = Place::memory().await;
    let old = place.open_elsewhere("a").await.take_lease("job", TakeOver::default()).await.unwrap();
    let second = place.open_elsewhere("b").await;
    let beating = tokio::spawn(old.heartbeat().keep_beating());
    for _ in 0..12 {
        place.clock.advance(HEARTBEAT_INTERVAL);
        tokio::time::advance(HEARTBEAT_INTERVAL).await;
        yield_now().await;
        assert!(second.take_lease("job", TakeOver::IfAbandoned).await.unwrap_err().is_held());
    }
    beating.abort();
    assert!(beating.await.unwrap_err().is_cancelled());
    place.clock.advance(HEARTBEAT_LIMIT);
    second.take_lease("job", TakeOver::IfAbandoned).await.unwrap();
}
