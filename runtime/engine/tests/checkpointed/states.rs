//! What a job says that it is doing.

use levada_engine::JobState;

use crate::scene::{Scene, restarts};

/// [CHK-16] [CHK-17] Checkpoints with their duration, restarts with their cause, and the end.
#[tokio::test]
async fn a_job_tells_what_it_is_doing() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2).restarts(restarts(1)));
    let mut state = job.state();
    assert_eq!(*state.borrow(), JobState::Starting);
    state.wait_for(|state| matches!(state, JobState::Running { last: None, restarts: 0 })).await.unwrap();
    scene.reach(&job, 300, 2).await;
    let checkpoint = job.trigger_checkpoint().await.unwrap();
    let last = state.wait_for(|state| state.last().is_some()).await.unwrap().last().unwrap();
    assert_eq!(last.id, checkpoint);

    // The wait for the restart is short: whoever looks sees each state, because nothing else runs in between.
    *scene.gate.fail_at.lock().unwrap() = Some(400);
    scene.gate.raise(500);
    let restarting =
        state.wait_for(|state| matches!(state, JobState::Restarting { .. })).await.unwrap().clone();
    let JobState::Restarting { cause, restarts: 1, .. } = restarting else { panic!("{restarting:?}") };
    assert!(cause.contains("asked to fail"), "{cause}");
    state.wait_for(|state| matches!(state, JobState::Running { last: None, restarts: 1 })).await.unwrap();

    scene.reach(&job, 600, 2).await;
    // In a task of its own, which is woken in line with those of the job.
    let mut seen = state.clone();
    let is_stopping = |state: &JobState| matches!(state, JobState::Stopping { .. });
    let stopping = tokio::spawn(async move { seen.wait_for(is_stopping).await.unwrap().clone() });
    let last = job.stop().await.unwrap();
    assert_eq!(stopping.await.unwrap(), JobState::Stopping { checkpoint: last });
    job.wait().await.unwrap();
    assert_eq!(*state.borrow(), JobState::Ended { cause: None });
}

/// [CHK-16]
#[tokio::test]
async fn the_end_of_a_job_that_gave_up_tells_why() {
    let scene = Scene::new().await;
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    scene.gate.raise(300);
    let job = scene.start(scene.job(2));
    let mut state = job.state();
    let ended = state.wait_for(|state| matches!(state, JobState::Ended { .. })).await.unwrap().clone();
    assert!(
        matches!(&ended, JobState::Ended { cause: Some(cause) } if cause.contains("asked to fail")),
        "{ended:?}"
    );
}

/// A stop does not wait for a restart that may never come to read.
#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_its_restart_ends_when_it_is_told_to_stop() {
    let scene = Scene::new().await;
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    scene.gate.raise(300);
    let delay = std::time::Duration::from_secs(3600);
    let strategy = levada_engine::checkpoint::RestartStrategy::FixedDelay { attempts: 9, delay };
    let mut job = scene.start(scene.job(2).restarts(strategy));
    job.state().wait_for(|state| matches!(state, JobState::Restarting { .. })).await.unwrap();
    let begun = tokio::time::Instant::now();
    job.stop().await.unwrap_err();
    let error = job.wait().await.unwrap_err();
    assert!(crate::scene::chain(&error).contains("asked to fail"), "{error:?}");
    assert!(begun.elapsed() < delay);
}
