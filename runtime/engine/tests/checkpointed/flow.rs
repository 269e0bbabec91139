//! Checkpoints, restarts and parallelism.

use std::time::Duration;

use levada_engine::checkpoint::CheckpointSettings;

use crate::scene::{Scene, all, chain, restarts, up_to};

/// [CHK-11] the last records are visible before a bounded job ends.
#[tokio::test]
async fn bounded_job_commits_everything_once() {
    let scene = Scene::new().await;
    let report = scene.finish(scene.job(2)).await.unwrap();
    assert!(report.last.is_some());
    assert_eq!(scene.target.visible(), all());
    assert_eq!((report.sinks["table"].written, report.sinks["table"].published), (1000, 1000));
}

/// [CHK-02] [CHK-08] [TPL-01] what no checkpoint covers is read again after a failure, and what one covers is not.
#[tokio::test]
async fn restarted_job_goes_on_from_the_latest_checkpoint() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(3).restarts(restarts(3)));
    let first = scene.resolve(&job, 500, 3).await;
    *scene.gate.fail_at.lock().unwrap() = Some(700);
    scene.gate.raise(u64::MAX);
    let report = job.wait().await.unwrap();
    assert_eq!(report.restarts, 1);
    assert!(report.last > Some(first));
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-01] [CHK-16] the name of a transaction is never used twice, though no checkpoint came between two failures.
#[tokio::test]
async fn job_that_fails_before_its_first_checkpoint_starts_anew() {
    let scene = Scene::new().await;
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    let report = scene.finish(scene.job(2).restarts(restarts(1))).await.unwrap();
    assert_eq!(report.restarts, 1);
    assert_eq!(scene.target.visible(), all());
    let scene = Scene::new().await;
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    let error = scene.finish(scene.job(2)).await.unwrap_err();
    assert!(chain(&error).contains("asked to fail"), "{error}");
}

/// [CHK-10] [CHK-12] [TPL-02] stopped with a last checkpoint, and started again with other parallelisms.
#[tokio::test]
async fn stopped_job_goes_on_with_more_and_with_fewer_subtasks() {
    let scene = Scene::new().await;
    for (parallelism, up_to) in [(2, 300), (4, 650), (3, u64::MAX)] {
        scene.gate.raise(up_to);
        let mut job = scene.start(scene.job(parallelism));
        if up_to < 1000 {
            job.stop().await.unwrap();
        }
        job.wait().await.unwrap();
        scene.gate.raise(0);
    }
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-06] checkpoints by the interval, while the records flow.
#[tokio::test(start_paused = true)]
async fn periodic_checkpoints_commit_while_the_job_runs() {
    let scene = Scene::new().await;
    scene.gate.raise(400);
    let settings = CheckpointSettings { interval: Some(Duration::from_secs(10)), ..Default::default() };
    let mut job = scene.start(scene.job(2).checkpoints(settings));
    let mut state = job.state();
    while scene.target.visible().len() < 400 {
        state.changed().await.unwrap();
    }
    assert_eq!(scene.target.visible(), up_to(400));
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-15] a job that was taken over ends itself.
#[tokio::test]
async fn job_that_was_taken_over_ends_without_a_side_effect() {
    let scene = Scene::new().await;
    let mut first = scene.start(scene.job(2));
    scene.resolve(&first, 300, 2).await;
    let mut second = scene.start(scene.job(2).take_over());
    second.trigger_checkpoint().await.unwrap();
    first.trigger_checkpoint().await.unwrap_err();
    let error = first.wait().await.unwrap_err();
    assert!(matches!(&error, levada_engine::JobError::Store(cause) if cause.is_taken_over()), "{error}");
    scene.gate.raise(u64::MAX);
    second.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-15] [KSK-16] the engine's part: a job whose transaction was ended by whoever took over fails at it, and says why.
#[tokio::test]
async fn job_whose_transaction_its_successor_has_fenced_says_that_it_was_taken_over() {
    let scene = Scene::new().await;
    let mut first = scene.start(scene.job(2));
    scene.resolve(&first, 300, 2).await;
    scene.gate.raise(600);
    scene.reach(&first, 600, 2).await;
    let mut second = scene.start(scene.job(2).take_over());
    second.trigger_checkpoint().await.unwrap();
    first.trigger_checkpoint().await.unwrap_err();
    let error = first.wait().await.unwrap_err();
    assert!(matches!(&error, levada_engine::JobError::Store(cause) if cause.is_taken_over()), "{error}");
    scene.gate.raise(u64::MAX);
    second.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
}
