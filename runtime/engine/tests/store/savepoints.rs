//! [CHK-12] [CHK-21] Savepoints.

use std::fs;

use levada_core::{CheckpointId, Timestamp};
use levada_engine::store::{
    Continued, Decision, Lease, Manifest, OperatorState, PartHome, RestoreFrom, RestorePolicy, StoreError,
    SubtaskState, TakeOver, choose,
};

use crate::places::{Place, complete, state_of};

async fn save(lease: &mut Lease, name: &str, sequence: u64) -> Result<CheckpointId, StoreError> {
    let id = CheckpointId::new(lease.attempt(), sequence);
    let stored = lease.store().put_state(&PartHome::Savepoint(name.into()), &state_of(9000)).await?;
    let subtasks = vec![SubtaskState { stored, ..SubtaskState::default() }];
    let mut manifest = Manifest::new(id, Timestamp(1));
    manifest.operators.insert("source".into(), OperatorState { parallelism: 1, subtasks });
    lease.complete_savepoint(name, manifest).await?;
    Ok(id)
}

/// [CHK-12] What it covers may have become visible, so a plain start goes on from it.
#[tokio::test]
async fn a_start_after_a_savepoint_goes_on_from_it() {
    for place in Place::all().await {
        let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        complete(&mut lease, 1).await;
        let id = save(&mut lease, "before-upgrade", 2).await.unwrap();
        let log = lease.store().latest().await.unwrap().log;
        let policy = RestorePolicy::default();
        let decision = choose(&log.entries, &log.damages, RestoreFrom::Latest, policy);
        let Decision::Restore(manifest) = decision else { panic!("{decision:?}") };
        assert_eq!(manifest.id, id);
        assert_eq!(lease.store().savepoints().await.unwrap(), ["before-upgrade"]);
        let savepoint = lease.store().savepoint("before-upgrade").await.unwrap();
        assert_eq!(savepoint.manifest, manifest);
    }
}

/// [CHK-12] Retention neither deletes savepoints nor counts them.
#[tokio::test]
async fn a_savepoint_outlives_its_checkpoint() {
    for place in Place::all().await {
        let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        save(&mut lease, "kept", 1).await.unwrap();
        for sequence in 2..8 {
            let id = complete(&mut lease, sequence).await;
            lease.resolve(id).await.unwrap();
            lease.retain(2).await.unwrap();
        }
        assert_eq!(lease.store().log().await.unwrap().checkpoints().count(), 2);
        lease.store().savepoint("kept").await.unwrap();
    }
}

/// [CHK-12] The folder is complete in itself: it can be copied to another store, under another name.
#[tokio::test]
async fn a_savepoint_can_be_copied_as_a_folder() {
    let (from, to) = (Place::directory(), Place::directory());
    let mut lease = from.open().await.take_lease("job", TakeOver::default()).await.unwrap();
    save(&mut lease, "one", 1).await.unwrap();
    let store = to.open().await;
    let target = to.folder().join("savepoints/two");
    fs::create_dir_all(&target).unwrap();
    for file in fs::read_dir(from.folder().join("savepoints/one")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), target.join(file.file_name())).unwrap();
    }
    let savepoint = store.savepoint("two").await.unwrap();
    let stored = &savepoint.manifest.operators["source"].subtasks[0].stored;
    assert_eq!(store.get_state(&savepoint.manifest.home(), stored).await.unwrap(), state_of(9000));
    fs::write(target.join("manifest"), b"").unwrap();
    assert!(matches!(store.savepoint("two").await, Err(StoreError::Damaged(_))));
    assert!(matches!(store.savepoint("three").await, Err(StoreError::Damaged(_))));
}

/// [CHK-21]
#[tokio::test]
async fn a_savepoint_that_was_continued_from_needs_replay() {
    for place in Place::all().await {
        let mut lease = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        save(&mut lease, "s", 1).await.unwrap();
        let store = lease.store();
        assert!(!store.savepoint("s").await.unwrap().needs_replay());
        let first = Continued { owner: "a".into(), attempt: 5, at: Timestamp(1) };
        let second = Continued { owner: "b".into(), ..first.clone() };
        assert_eq!(store.mark_continued("s", &first).await.unwrap(), first);
        assert_eq!(store.mark_continued("s", &second).await.unwrap(), first, "the first mark stays");
        let savepoint = store.savepoint("s").await.unwrap();
        assert!(savepoint.needs_replay());
        assert_eq!(savepoint.continued, Some(first));
    }
}

/// [CHK-15] [CHK-12] A process that was taken over completes no savepoint.
#[tokio::test]
async fn a_savepoint_of_an_old_attempt_is_none() {
    for place in Place::all().await {
        let mut old = place.open().await.take_lease("job", TakeOver::default()).await.unwrap();
        let new = place.open().await.take_lease("job", TakeOver::Always).await.unwrap();
        assert!(save(&mut old, "late", 1).await.unwrap_err().is_taken_over());
        assert!(new.store().savepoints().await.unwrap().is_empty());
    }
}
