//! The checkpoint store, stopped and broken at its fail points.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use fail::FailScenario;
use levada_core::{CheckpointId, ListState, Spread, State, Timestamp};
use levada_engine::store::{
    FAIL_POINTS, Lease, Manifest, OperatorState, PartHome, Store, StoreError, SubtaskState, TakeOver,
};
use tokio::sync::Notify;

async fn memory() -> Store {
    Store::open("memory:").await.unwrap()
}

async fn held(store: &Store) -> Lease {
    store.take_lease("job", TakeOver::Always).await.unwrap()
}

/// Writes a checkpoint with one small part; the first of an attempt has one that comes in chunks, too.
async fn written(store: &Store, id: CheckpointId, home: PartHome) -> Result<Manifest, StoreError> {
    let mut subtasks = Vec::new();
    for bytes in [5_000, if id.sequence == 1 { 9 << 20 } else { 10 }] {
        let list = ListState::new(Spread::Split, 1, vec![vec![1; bytes]]);
        let stored = store.put_state(&home, &State::new().with("elements", list)).await?;
        subtasks.push(SubtaskState { stored, ..SubtaskState::default() });
    }
    let mut manifest = Manifest::new(id, Timestamp(0));
    manifest.operators.insert("source".into(), OperatorState { parallelism: 2, subtasks });
    Ok(manifest)
}

async fn complete(lease: &mut Lease, sequence: u64) -> Result<CheckpointId, StoreError> {
    let id = CheckpointId::new(lease.attempt(), sequence);
    let manifest = written(lease.store(), id, PartHome::Checkpoint(id)).await?;
    lease.complete(manifest).await?;
    Ok(id)
}

/// [CHK-15] The counter-test: without the condition, both attempts complete a checkpoint.
#[tokio::test]
async fn without_the_condition_an_old_attempt_completes_its_checkpoint_after_a_takeover() {
    let scenario = FailScenario::setup();
    for is_conditional in [true, false] {
        let store = memory().await;
        let mut old = held(&store).await;
        let id = CheckpointId::new(old.attempt(), 1);
        let acknowledged = written(&store, id, PartHome::Checkpoint(id)).await.unwrap();
        let mut new = held(&store).await;
        if !is_conditional {
            fail::cfg("store::without_condition", "return").unwrap();
        }
        let late = old.complete(acknowledged).await;
        let newer = complete(&mut new, 1).await;
        assert!(newer.is_ok());
        match is_conditional {
            true => assert!(late.unwrap_err().is_taken_over()),
            false => assert!(late.is_ok(), "the condition is what holds it back"),
        }
    }
    scenario.teardown();
}

/// [CHK-15] A store that overwrites is refused when it is opened.
#[tokio::test]
async fn a_store_that_does_not_create_conditionally_is_refused() {
    let scenario = FailScenario::setup();
    fail::cfg("store::without_condition", "return").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory:", folder.path().to_str().unwrap()] {
        let error = Store::open(url).await.unwrap_err();
        assert!(matches!(error, StoreError::NotConditional { .. }), "{error:?}");
        assert!(error.to_string().starts_with(url), "{error}");
    }
    scenario.teardown();
}

/// [CHK-03] The entry is there, its answer is not: it is read back, and written once.
#[tokio::test]
async fn a_lost_answer_is_settled_by_reading_the_entry_back() {
    let scenario = FailScenario::setup();
    let folder = tempfile::tempdir().unwrap();
    let mut stores = vec![memory().await, Store::open(folder.path().to_str().unwrap()).await.unwrap()];
    // Where `.ci/s3/run` started a server.
    if let Ok(bucket) = std::env::var("LEVADA_S3_STORE") {
        stores.push(Store::open(&format!("{bucket}/lost-answer")).await.unwrap());
    }
    for store in stores {
        fail::cfg("store::lost_answer", "return").unwrap();
        let mut lease = held(&store).await;
        assert_eq!(lease.attempt(), 1);
        let id = complete(&mut lease, 1).await.unwrap();
        assert_eq!(lease.resolve(id).await.unwrap(), 3);
        fail::remove("store::lost_answer");
        assert_eq!(store.log().await.unwrap().head, 3);
    }
    scenario.teardown();
}

/// Runs a future until its entry is written, and drops it there.
async fn dropped_behind_the_put<T: std::fmt::Debug>(future: impl Future<Output = T>) {
    let written = Arc::new(Notify::new());
    let (point, (release, wait)) = (Arc::clone(&written), mpsc::channel::<()>());
    let wait = Mutex::new(wait);
    fail::cfg_callback("store::entry::after_link", move || {
        point.notify_one();
        // Until the future is gone.
        let _ = wait.lock().unwrap().recv();
    })
    .unwrap();
    tokio::select! {
        () = written.notified() => {}
        done = future => panic!("it was not held: {done:?}"),
    }
    drop(release);
    fail::remove("store::entry::after_link");
}

/// [CHK-03] A dropped future left an entry behind: the next append recognises it as its own, and it is no takeover.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_a_dropped_append_is_known_again() {
    let scenario = FailScenario::setup();
    let store = memory().await;
    let mut lease = held(&store).await;
    let id = CheckpointId::new(1, 1);
    let manifest = written(&store, id, PartHome::Checkpoint(id)).await.unwrap();
    dropped_behind_the_put(lease.complete(manifest)).await;
    lease.abandon(id).await.unwrap();
    let second = complete(&mut lease, 2).await.unwrap();
    let ids: Vec<_> = store.log().await.unwrap().checkpoints().map(|(number, m)| (number, m.id)).collect();
    assert_eq!(ids, [(2, id), (3, second)]);
    assert_eq!(store.verify().await.unwrap().damages, [], "its parts stayed, though it counted as failed");
    scenario.teardown();
}

/// [CHK-15] A lease whose taker was dropped is held by nobody, though its process lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_a_dropped_call_does_not_stand_in_the_way() {
    let scenario = FailScenario::setup();
    let store = memory().await;
    dropped_behind_the_put(store.take_lease("job", TakeOver::IfAbandoned)).await;
    assert_eq!(store.log().await.unwrap().head, 1);
    assert_eq!(store.take_lease("job", TakeOver::IfAbandoned).await.unwrap().attempt(), 2);
    let third = store.take_lease("job", TakeOver::IfAbandoned).await;
    assert!(third.unwrap_err().is_held());
    scenario.teardown();
}

/// Everything a store does, once.
async fn everything(store: Store) -> Result<(), StoreError> {
    let mut lease = held(&store).await;
    store.put_piece(CheckpointId::new(lease.attempt(), 1), vec![1; 10].into()).await?;
    for sequence in 1..=4 {
        let id = complete(&mut lease, sequence).await?;
        lease.resolve(id).await?;
    }
    let id = CheckpointId::new(lease.attempt(), 5);
    let manifest = written(&store, id, PartHome::Savepoint(id.to_string())).await?;
    lease.complete_savepoint(&id.to_string(), manifest).await?;
    lease.retain(2).await?;
    lease.heartbeat().beat().await
}

/// [CHK-19] [CHK-14] Every fail point is passed, and a crash at it leaves a store that the next attempt goes on with.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_every_fail_point_leaves_a_whole_store() {
    let scenario = FailScenario::setup();
    for point in FAIL_POINTS {
        if *point == "store::entry::before_read_back" {
            // Passed only after a lost answer.
            fail::cfg("store::lost_answer", "return").unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).await.unwrap();
        let passed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&passed);
        fail::cfg_callback(*point, move || {
            flag.store(true, Ordering::SeqCst);
            std::panic::panic_any("crash");
        })
        .unwrap();
        let crashed = tokio::spawn(everything(store.clone())).await;
        assert!(crashed.unwrap_err().is_panic(), "{point} was not reached");
        assert!(passed.load(Ordering::SeqCst));
        fail::remove(*point);
        fail::remove("store::lost_answer");
        assert_eq!(store.verify().await.unwrap().damages, [], "after a crash at {point}");
        everything(store.clone()).await.unwrap();
        assert_eq!(store.verify().await.unwrap().damages, [], "after going on from {point}");
    }
    scenario.teardown();
}

/// [CHK-18] What a running job discards between the reading of the log and that of the parts is no damage; what is missing
/// otherwise is.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_discarded_while_somebody_looks_is_no_damage() {
    let scenario = FailScenario::setup();
    let store = memory().await;
    let mut lease = held(&store).await;
    let first = complete(&mut lease, 1).await.unwrap();
    let second = complete(&mut lease, 2).await.unwrap();
    lease.resolve(second).await.unwrap();
    let (retaining, runtime) = (Arc::new(Mutex::new(lease)), tokio::runtime::Handle::current());
    let job = Arc::clone(&retaining);
    fail::cfg_callback("store::inspect::between_log_and_pieces", move || {
        let mut lease = job.lock().unwrap();
        runtime.block_on(async {
            let next = lease.store().log().await.unwrap().checkpoints().count() as u64 + 10;
            let id = complete(&mut lease, next).await.unwrap();
            lease.resolve(id).await.unwrap();
            lease.retain(2).await.unwrap();
        });
    })
    .unwrap();
    assert_eq!(store.verify().await.unwrap().damages, []);
    let (summary, damages) = store.show(second).await.unwrap().unwrap();
    assert_eq!((summary.discarded, damages), (true, vec![]));
    assert!(store.log().await.unwrap().checkpoints().all(|(_, manifest)| manifest.id > first));
    scenario.teardown();
}
