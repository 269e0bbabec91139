//! [CHK-12] [CHK-21] Savepoints of running jobs.

use levada_core::CheckpointId;
use levada_engine::store::{RestoreFrom, Store};
use levada_engine::{Drain, TakenSavepoint};

use crate::scene::{END, Scene, all, chain, restarts, up_to};

/// Stops a job of two subtasks with a savepoint of 300 numbers.
async fn stopped_at_300(scene: &Scene, drain: Drain) -> TakenSavepoint {
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    let savepoint = job.stop_with_savepoint(drain).await.unwrap();
    let report = job.wait().await.unwrap();
    assert_eq!(report.savepoint.as_ref(), Some(&savepoint));
    assert_eq!(report.last, Some(savepoint.id), "its side effects are committed before the job ends");
    savepoint
}

/// [CHK-12] [CHK-10]
#[tokio::test]
async fn a_job_stopped_with_a_savepoint_goes_on_from_it_with_another_parallelism() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::over(Store::open(folder.path().to_str().unwrap()).await.unwrap());
    let savepoint = stopped_at_300(&scene, Drain::No).await;
    assert_eq!(scene.target.visible(), up_to(300));
    assert!(std::path::Path::new(&savepoint.location).join("manifest").exists(), "{}", savepoint.location);
    scene.finish(scene.job(5).restore_from_savepoint(&savepoint.name)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
    let savepoint = scene.store.savepoint(&savepoint.name).await.unwrap();
    assert_eq!(savepoint.continued.unwrap().owner, "count");
}

/// [CHK-12] A plain start goes on from it, too.
#[tokio::test]
async fn a_plain_start_goes_on_from_the_savepoint_that_a_job_was_stopped_with() {
    let scene = Scene::new().await;
    stopped_at_300(&scene, Drain::No).await;
    scene.finish(scene.job(2)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-12]
#[tokio::test]
async fn a_drained_job_has_committed_everything_and_is_marked() {
    let scene = Scene::new().await;
    let savepoint = stopped_at_300(&scene, Drain::Yes).await;
    assert_eq!(scene.target.visible(), up_to(300));
    assert!(scene.store.savepoint(&savepoint.name).await.unwrap().manifest.drained);
}

/// [CHK-12] The job goes on, and nothing is committed on account of the savepoint.
#[tokio::test]
async fn a_savepoint_of_a_running_job_does_not_stop_it() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    let savepoint = job.savepoint().await.unwrap();
    assert_eq!(scene.target.visible(), [0; 0]);
    assert_eq!(scene.store.savepoints().await.unwrap(), [savepoint.name.as_str()]);
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-21] Which sink would publish again, and how much.
#[tokio::test]
async fn a_savepoint_that_was_gone_on_from_needs_a_replay_and_the_refusal_says_of_what() {
    let scene = Scene::new().await;
    let savepoint = stopped_at_300(&scene, Drain::No).await;
    scene.finish(scene.job(2).restore_from_savepoint(&savepoint.name)).await.unwrap();
    let again = || scene.job(2).restore_from_savepoint(&savepoint.name);
    let error = scene.finish(again()).await.unwrap_err();
    let text = chain(&error);
    for part in
        [&format!("savepoint {:?} was gone on from", savepoint.name), "sink \"table\" at least 700 records"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(scene.target.visible(), all());
    scene.finish(again().allow_replay()).await.unwrap();
    assert_eq!(scene.target.visible().len(), END as usize + 700);
}

/// [CHK-21] Older than the newest resolved checkpoint.
#[tokio::test]
async fn an_older_checkpoint_needs_a_replay_and_the_refusal_says_of_what() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2));
    let older = scene.resolve(&job, 300, 2).await;
    scene.reach(&job, 500, 2).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
    let from = |checkpoint| scene.job(2).restore_from(RestoreFrom::Checkpoint(checkpoint));
    let text = chain(&scene.finish(from(older)).await.unwrap_err());
    assert!(text.contains(&format!("from checkpoint {older}")), "{text}");
    assert!(text.contains("sink \"table\" at least 200 records"), "{text}");
    let unknown = chain(&scene.finish(from(CheckpointId::new(900, 1))).await.unwrap_err());
    assert!(unknown.contains("checkpoint 900-1 is not in the store"), "{unknown}");
    scene.target.take_calls();
    scene.finish(from(older).allow_replay()).await.unwrap();
    assert_eq!(scene.target.visible().len(), END as usize + 200);
    // All of it is visible, and its names may have been used again by those behind it.
    let calls = scene.target.take_calls();
    assert_eq!(calls.iter().find(|call| call.starts_with("fence")).unwrap(), "fence ", "nothing is spared");
}

/// [CHK-21] A replay is allowed once: a restart goes on from what its own start has completed.
#[tokio::test]
async fn a_restart_goes_on_from_its_own_checkpoint_and_not_again_from_the_older_one() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2));
    let older = scene.resolve(&job, 300, 2).await;
    scene.reach(&job, 500, 2).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
    let replay = scene.job(2).restore_from(RestoreFrom::Checkpoint(older)).allow_replay();
    let mut job = scene.start(replay.restarts(restarts(1)));
    scene.resolve(&job, 700, 2).await;
    *scene.gate.fail_at.lock().unwrap() = Some(800);
    scene.gate.raise(u64::MAX);
    assert_eq!(job.wait().await.unwrap().restarts, 1);
    // Those from 300 to 500 once more, and none of those behind.
    assert_eq!(scene.target.visible().len(), END as usize + 200);
}

/// [CHK-21] Nothing was published yet by whoever went on from it, so it may be tried again.
#[tokio::test]
async fn a_savepoint_may_be_gone_on_from_again_until_a_checkpoint_follows() {
    let scene = Scene::new().await;
    let savepoint = stopped_at_300(&scene, Drain::No).await;
    for _ in 0..2 {
        *scene.gate.fail_at.lock().unwrap() = Some(400);
        scene.finish(scene.job(2).restore_from_savepoint(&savepoint.name)).await.unwrap_err();
    }
    scene.finish(scene.job(2).restore_from_savepoint(&savepoint.name)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-01] Ids rise: a savepoint of a store that had more attempts cannot be gone on from here.
#[tokio::test]
async fn a_savepoint_with_ids_beyond_this_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let scene = Scene::over(Store::open(&place("a")).await.unwrap());
    scene.finish(scene.job(2)).await.unwrap();
    let other = Scene::over(Store::open(&place("a")).await.unwrap());
    other.gate.raise(u64::MAX);
    let job = other.start(other.job(2));
    let savepoint = job.stop_with_savepoint(Drain::No).await;
    drop(job);
    if let Ok(savepoint) = savepoint {
        std::fs::create_dir_all(place("b/savepoints")).unwrap();
        std::fs::rename(&savepoint.location, format!("{}/savepoints/moved", place("b"))).unwrap();
        let moved = Scene::over(Store::open(&place("b")).await.unwrap());
        let error = moved.finish(moved.job(2).restore_from_savepoint("moved")).await.unwrap_err();
        assert!(chain(&error).contains("above attempt 1 of this store"), "{error:?}");
    } else {
        panic!("{savepoint:?}");
    }
}
