//! Requests, failures and settings at their edges.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use levada_core::{Clock, Timestamp};
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::driver::LossPolicy;
use levada_engine::store::Store;
use levada_engine::{CheckpointedJob, Drain, Job, JobError, JobState, Route};

use crate::heavy::heavy_job;
use crate::scene::{Scene, all, chain, options, restarts, up_to};
use crate::target::Phase;

/// [CHK-06] Several pending transactions with an exchange between; commits come in order when the target is back.
#[tokio::test(start_paused = true)]
async fn several_checkpoints_in_flight_across_an_exchange_commit_everything_once() {
    let settings = CheckpointSettings {
        interval: Some(Duration::from_millis(10)),
        max_concurrent: 4,
        ..CheckpointSettings::default()
    };
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(3).checkpoints(settings));
    for up_to in (0..=1000).step_by(50) {
        scene.reach(&job, up_to.min(950), 3).await;
        let (first, second) = tokio::join!(job.trigger_checkpoint(), job.trigger_checkpoint());
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    }
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-12] Both are complete, whichever was asked for first.
#[tokio::test]
async fn a_savepoint_and_a_checkpoint_in_flight_together_are_both_complete() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    let (checkpoint, savepoint, other) =
        tokio::join!(job.trigger_checkpoint(), job.savepoint(), job.savepoint());
    let (savepoint, other) = (savepoint.unwrap(), other.unwrap());
    assert!(checkpoint.is_ok() && savepoint.id != other.id);
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
    for name in [savepoint.name, other.name] {
        assert!(scene.store.savepoint(&name).await.is_ok());
    }
}

/// [CHK-12] [CHK-13] A stop that comes while the job still recovers is done once it runs.
#[tokio::test]
async fn a_stop_during_the_recovery_ends_the_job_with_what_was_pending() {
    let scene = Scene::new().await;
    scene.with_pending().await;
    let mut job = scene.start(scene.job(2));
    job.stop().await.unwrap();
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), up_to(600));
    assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
}

/// [CHK-12] [TPL-12] The stop's own checkpoint must be rolled back: the job reads nothing beyond what it stopped at for ever, but ends.
#[tokio::test(start_paused = true)]
async fn a_stop_whose_transactions_are_lost_does_not_leave_the_job_running() {
    for is_savepoint in [false, true] {
        let scene = Scene::new().await;
        let mut job = scene.start(scene.job(2).restarts(restarts(3)));
        scene.resolve(&job, 300, 2).await;
        scene.target.set_away(true);
        scene.reach(&job, 600, 2).await;
        match is_savepoint {
            true => drop(job.stop_with_savepoint(Drain::No).await.unwrap()),
            false => drop(job.stop().await.unwrap()),
        }
        let mut state = job.state();
        state.wait_for(|state| matches!(state, JobState::Restarting { .. })).await.unwrap();
        scene.target.expire(&scene.target.in_phase(Phase::PreCommitted));
        scene.target.set_away(false);
        let ended = tokio::time::timeout(Duration::from_secs(3600), job.wait()).await;
        let outcome = ended.expect("it runs on, though it was told to stop");
        drop(job);
        scene.finish(scene.job(2)).await.unwrap();
        assert_eq!(scene.target.visible(), all(), "{outcome:?}");
    }
}

/// [CHK-11] The last checkpoint of a bounded job is complete, and its commits fail: they are made by the restart.
#[tokio::test]
async fn a_failure_at_the_bounded_end_commits_once_after_the_restart() {
    let scene = Scene::new().await;
    scene.target.set_away(true);
    scene.gate.raise(u64::MAX);
    let mut job = scene.start(scene.job(2).restarts(restarts(2)));
    let mut state = job.state();
    state.wait_for(|state| matches!(state, JobState::Restarting { .. })).await.unwrap();
    scene.target.set_away(false);
    let report = job.wait().await.unwrap();
    assert_eq!(report.restarts, 1);
    assert_eq!(scene.target.visible(), all());
    assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
}

/// [CHK-16] Every opening fails until the target is back; each attempt counts.
#[tokio::test(start_paused = true)]
async fn openings_that_fail_are_restarted_until_the_strategy_gives_up() {
    let scene = Scene::new().await;
    scene.with_pending().await;
    scene.target.set_away(true);
    let mut job = scene.start(scene.job(2).restarts(restarts(3)));
    let error = job.wait().await.unwrap_err();
    assert!(chain(&error).contains("the target is away"), "{error:?}");
    assert_eq!(scene.target.take_calls().iter().filter(|call| call.starts_with("fence")).count(), 4);
    scene.target.set_away(false);
    scene.finish(scene.job(2)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// Into two lines, one of them behind an exchange.
fn parted(scene: &Scene, parallelism: u32) -> CheckpointedJob {
    let (even, odd) = (scene.target.clone(), scene.target.clone());
    Job::new("count")
        .parallelism(parallelism)
        .source_function("numbers", scene.source())
        .side_output(
            "parting",
            |number| match number.item() % 2 {
                0 => Ok(Route::Main(*number.item())),
                _ => Ok(Route::Side(*number.item())),
            },
            |side| {
                side.key_by("by digit", |number| number % 10).two_phase_sink(
                    "odd",
                    options(LossPolicy::Fail),
                    move |_| odd.sink("odd"),
                )
            },
        )
        .two_phase_sink("even", options(LossPolicy::Fail), move |_| even.sink("even"))
}

/// [CHK-10] [TPL-12] Pending transactions of both lines, of more subtasks than there are then, and of fewer.
#[tokio::test]
async fn a_job_with_side_outputs_changes_its_parallelism_with_transactions_pending() {
    for parallelisms in [[4, 1, 3], [1, 5, 2]] {
        let scene = Scene::new().await;
        for (parallelism, up_to) in parallelisms.into_iter().zip([300, 600, 900]) {
            let mut job = scene.start(parted(&scene, parallelism));
            scene.reach(&job, up_to, parallelism).await;
            scene.target.set_away(true);
            job.trigger_checkpoint().await.unwrap();
            job.wait().await.unwrap_err();
            scene.target.set_away(false);
        }
        scene.finish(parted(&scene, 2)).await.unwrap();
        assert_eq!(scene.target.visible(), all(), "{parallelisms:?}");
        assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
    }
}

/// [CHK-09] A sink under a new name: what the old one holds back would be forgotten, and that is said; where it is allowed, only what
/// was pending is gone, and what is visible is not doubled.
#[tokio::test]
async fn a_renamed_sink_is_refused_while_the_old_one_holds_something_back() {
    let scene = Scene::new().await;
    scene.with_pending().await;
    let renamed = || {
        let target = scene.target.clone();
        Job::new("count").parallelism(2).source_function("numbers", scene.source()).two_phase_sink(
            "renamed",
            options(LossPolicy::Fail),
            move |_| target.sink("table"),
        )
    };
    let error = scene.finish(renamed()).await.unwrap_err();
    assert!(matches!(&error, JobError::UnknownState { uid, .. } if uid == "table"), "{error:?}");
    assert_eq!(scene.target.in_phase(Phase::Aborted).len(), 0, "refused before anything is dropped");
    scene.finish(scene.job(2)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// A clock that only ever goes back.
#[derive(Debug)]
struct Backwards(AtomicI64);

impl Clock for Backwards {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_sub(3_600_000, Ordering::SeqCst))
    }
}

/// [CHK-15] No clock takes part in safety.
#[tokio::test]
async fn a_clock_that_goes_back_changes_nothing() {
    let clock: Arc<dyn Clock> = Arc::new(Backwards(AtomicI64::new(1_800_000_000_000)));
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).await.unwrap().with_clock(Arc::clone(&clock));
    let scene = Scene::over(store);
    scene.target.lock().timeout = Some(Duration::from_secs(900));
    for up_to in [300, 600, u64::MAX] {
        let mut job = scene.start(scene.job(2).clock(Arc::clone(&clock)));
        scene.gate.raise(up_to);
        if up_to < 1000 {
            scene.reach(&job, up_to, 2).await;
            job.stop().await.unwrap();
        }
        job.wait().await.unwrap();
    }
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-06] Failures one after the other count, and a success between begins anew.
#[tokio::test(start_paused = true)]
async fn tolerable_failures_are_counted_one_after_the_other() {
    let settings = CheckpointSettings {
        interval: Some(Duration::from_secs(10)),
        min_pause: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        tolerable_failures: 1,
        ..CheckpointSettings::default()
    };
    let scene = Scene::new().await;
    scene.target.lock().hangs = true;
    let mut job = scene.start(scene.job(2).checkpoints(settings));
    scene.gate.raise(300);
    // The first is complete, and its commits hang the sinks: the next two expire.
    let error =
        tokio::time::timeout(Duration::from_secs(3600), job.wait()).await.expect("it hangs").unwrap_err();
    assert!(chain(&error).contains("2"), "{}", chain(&error));
    scene.target.lock().hangs = false;
    scene.finish(scene.job(2)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-17] [CHK-10] Large states of many subtasks, dealt out to fewer.
#[tokio::test]
async fn a_hundred_megabytes_of_state_are_stored_restored_and_dealt_out() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::over(Store::open(folder.path().to_str().unwrap()).await.unwrap());
    let mut job = scene.start(heavy_job(&scene, 12, 9 << 20));
    scene.reach(&job, 500, 12).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
    scene.finish(heavy_job(&scene, 5, 10)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-15] [TPL-07] Another job's checkpoints are not gone on from by mistake: its positions, and what it holds back, are its own.
#[tokio::test]
async fn a_job_of_another_name_does_not_go_on_from_this_ones_checkpoints() {
    let scene = Scene::new().await;
    scene.with_pending().await;
    let other = || {
        let target = scene.target.clone();
        Job::new("other").parallelism(2).source_function("numbers", scene.source()).two_phase_sink(
            "table",
            options(LossPolicy::Fail),
            move |_| target.sink("table"),
        )
    };
    let error = scene.finish(other()).await.unwrap_err();
    let text = chain(&error);
    assert!(text.contains("\"count\"") && text.contains("\"other\""), "{text}");
    assert_eq!(scene.target.in_phase(Phase::Aborted).len(), 0, "nothing of it is touched");
    scene.finish(scene.job(2)).await.unwrap();
    assert_eq!(scene.target.visible(), all());
}
