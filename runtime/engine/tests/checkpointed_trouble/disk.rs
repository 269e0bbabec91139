//! [CHK-14] A store whose disk is full or read-only for a while, and one that is deleted under a job.

use std::fs;
use std::path::Path;

use levada_engine::JobError;
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::store::{Store, StoreError};

use crate::heavy::heavy_job;
use crate::scene::{Scene, all, chain, restarts, up_to};
use crate::small_disk::SmallDisk;

/// Less than an entry's limit, and more.
const STATES: [usize; 2] = [10, 10_000];

fn tolerant(tolerable_failures: u32) -> CheckpointSettings {
    CheckpointSettings { tolerable_failures, ..CheckpointSettings::default() }
}

async fn over(folder: &Path) -> Scene {
    Scene::over(Store::open(folder.to_str().unwrap()).await.unwrap())
}

/// Breaks the disk for two checkpoints of a job that tolerates two failures, mends it, and lets the job come to its end.
async fn broken_for_a_while(ballast: usize, set_broken: impl Fn(&SmallDisk, bool)) {
    let Some(disk) = SmallDisk::mount() else { return };
    let scene = over(&disk.store()).await;
    let mut job = scene.start(heavy_job(&scene, 2, ballast).checkpoints(tolerant(2)));
    let first = scene.resolve(&job, 300, 2).await;
    set_broken(&disk, true);
    for up_to in [400, 500] {
        scene.reach(&job, up_to, 2).await;
        job.trigger_checkpoint().await.unwrap_err();
    }
    assert_eq!(
        scene.target.visible(),
        up_to(300),
        "nothing is committed on account of a checkpoint that failed"
    );
    set_broken(&disk, false);
    let later = scene.resolve(&job, 700, 2).await;
    assert!(later > first);
    assert_eq!(
        scene.target.visible(),
        up_to(700),
        "what was handed over for those that failed comes with the next"
    );
    assert_eq!(scene.store.verify().await.unwrap().damages, []);
    scene.gate.raise(u64::MAX);
    let report = job.wait().await.unwrap();
    assert_eq!(report.restarts, 0);
    assert_eq!(scene.target.visible(), all());
    assert_eq!(scene.store.verify().await.unwrap().damages, []);
}

/// [CHK-14] [CHK-05] [CHK-06]
#[tokio::test]
async fn a_job_outlives_a_full_disk_and_loses_nothing() {
    for ballast in STATES {
        broken_for_a_while(ballast, |disk, is_full| if is_full { disk.fill() } else { disk.free() }).await;
    }
}

/// [CHK-14] [CHK-05] [CHK-06]
#[tokio::test]
async fn a_job_outlives_a_disk_that_may_not_be_written_for_a_while() {
    for ballast in STATES {
        broken_for_a_while(ballast, SmallDisk::set_read_only).await;
    }
}

/// [CHK-14] [CHK-06] One failure more than is tolerated ends the job; a start with space again goes on.
#[tokio::test]
async fn a_job_with_no_tolerance_ends_on_a_full_disk_and_goes_on_later() {
    for ballast in STATES {
        let Some(disk) = SmallDisk::mount() else { return };
        let scene = over(&disk.store()).await;
        let mut job = scene.start(heavy_job(&scene, 2, ballast));
        scene.resolve(&job, 300, 2).await;
        disk.fill();
        scene.reach(&job, 400, 2).await;
        job.trigger_checkpoint().await.unwrap_err();
        let error = job.wait().await.unwrap_err();
        assert!(matches!(error, JobError::Checkpoints(_)), "{error:?}");
        assert!(chain(&error).contains("could not"), "{}", chain(&error));
        disk.free();
        scene.finish(heavy_job(&scene, 3, ballast)).await.unwrap();
        assert_eq!(scene.target.visible(), all());
        assert_eq!(scene.store.verify().await.unwrap().damages, []);
    }
}

/// [CHK-14] A stop on a full disk fails loudly, and nothing is lost.
#[tokio::test]
async fn a_job_that_cannot_store_its_last_checkpoint_says_so() {
    let Some(disk) = SmallDisk::mount() else { return };
    let scene = over(&disk.store()).await;
    let mut job = scene.start(heavy_job(&scene, 2, 10_000));
    scene.resolve(&job, 300, 2).await;
    scene.reach(&job, 500, 2).await;
    disk.fill();
    job.stop().await.unwrap_err();
    job.wait().await.unwrap_err();
    disk.free();
    scene.finish(heavy_job(&scene, 2, 10_000)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-08] [CHK-14] A checkpoint in a store that has lost everything before it would be the only one, and the job would
/// begin anew when the lost disk is back, or gone for good: it ends.
#[tokio::test]
async fn a_job_whose_store_is_deleted_completes_no_checkpoint_and_never_starts_from_nothing() {
    for ballast in STATES {
        let folder = tempfile::tempdir().unwrap();
        let scene = over(&folder.path().join("store")).await;
        let mut job = scene.start(heavy_job(&scene, 2, ballast).restarts(restarts(5)));
        scene.resolve(&job, 300, 2).await;
        lose(folder.path());
        scene.reach(&job, 600, 2).await;
        job.trigger_checkpoint().await.unwrap_err();
        let error = job.wait().await.unwrap_err();
        assert_names_the_lost_lease(&error);
        assert_eq!(scene.target.visible(), up_to(300));
    }
}

/// [CHK-08] The failure is another one; the restart finds that the store is gone.
#[tokio::test]
async fn a_restart_whose_store_was_deleted_does_not_begin_anew() {
    let folder = tempfile::tempdir().unwrap();
    let scene = over(&folder.path().join("store")).await;
    let mut job = scene.start(heavy_job(&scene, 2, 10).restarts(restarts(5)));
    scene.resolve(&job, 300, 2).await;
    lose(folder.path());
    *scene.gate.fail_at.lock().unwrap() = Some(400);
    scene.gate.raise(u64::MAX);
    let error = job.wait().await.unwrap_err();
    assert_names_the_lost_lease(&error);
    assert_eq!(scene.target.visible(), up_to(300));
}

/// Takes the store away at once, as an unmount does: a heartbeat may be on its way into it.
fn lose(folder: &Path) {
    fs::rename(folder.join("store"), folder.join("elsewhere")).unwrap();
}

fn assert_names_the_lost_lease(error: &JobError) {
    let JobError::Store(cause) = error else { panic!("{error:?}") };
    assert!(matches!(**cause, StoreError::Damaged(_)), "{error:?}");
    let text = chain(error);
    assert!(text.contains("entry 1") && text.contains("missing"), "{text}");
}
