//! [TPL-12] Several sinks in one job: decided over together.

use levada_engine::driver::{LossPolicy, Retry};
use levada_engine::{CheckpointedJob, Job};

use crate::scene::{Scene, all, chain, options, up_to};
use crate::segments::Segments;
use crate::target::Phase;

/// Two sinks of one target, each with all numbers.
fn two_tables(scene: &Scene) -> CheckpointedJob {
    let (left, right) = (scene.target.clone(), scene.target.clone());
    Job::new("count")
        .parallelism(2)
        .source_function("numbers", scene.source())
        .tee("copy", |copy| {
            copy.two_phase_sink("left", options(LossPolicy::Fail), move |_| left.sink("left"))
        })
        .two_phase_sink("right", options(LossPolicy::Fail), move |_| right.sink("right"))
}

/// A two-phase sink, and a write-ahead sink of the same numbers.
fn table_and_segments(scene: &Scene, segments: &Segments) -> CheckpointedJob {
    let (target, segments) = (scene.target.clone(), segments.clone());
    let retry = Retry { attempts: 1, ..Retry::default() };
    Job::new("count")
        .parallelism(2)
        .source_function("numbers", scene.source())
        .tee("copy", |copy| {
            copy.write_ahead_sink("segments", retry, move |_| (segments.clone(), segments.clone()))
        })
        .two_phase_sink("table", options(LossPolicy::Fail), move |_| target.sink("table"))
}

fn twice(numbers: &[u64]) -> Vec<u64> {
    numbers.iter().flat_map(|number| [*number, *number]).collect()
}

/// A checkpoint of 300 numbers is resolved, one of 600 waits.
async fn pending(scene: &Scene, job: CheckpointedJob) -> Vec<String> {
    let mut job = scene.start(job);
    scene.resolve(&job, 300, 2).await;
    scene.target.set_away(true);
    scene.reach(&job, 600, 2).await;
    job.trigger_checkpoint().await.unwrap();
    job.wait().await.unwrap_err();
    scene.target.set_away(false);
    scene.target.take_calls();
    scene.target.in_phase(Phase::PreCommitted)
}

/// [TPL-12] What one sink has lost, the other must not publish: both go back.
#[tokio::test]
async fn a_loss_of_one_sink_rolls_all_of_them_back() {
    let scene = Scene::new().await;
    let waiting = pending(&scene, two_tables(&scene)).await;
    let left: Vec<_> = waiting.iter().filter(|handle| handle.starts_with("left")).cloned().collect();
    scene.target.expire(&left);
    assert_eq!(scene.target.visible(), twice(&up_to(300)));
    scene.finish(two_tables(&scene)).await.unwrap();
    assert_eq!(scene.target.visible(), twice(&all()));
    assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
}

/// [TPL-12] One sink has published, the other has lost: torn, though each of them alone would know what to do.
#[tokio::test]
async fn sinks_of_which_one_has_published_and_another_lost_are_torn() {
    let scene = Scene::new().await;
    let waiting = pending(&scene, two_tables(&scene)).await;
    for handle in &waiting {
        match handle.starts_with("left") {
            true => scene.target.expire(std::slice::from_ref(handle)),
            false => scene.target.commit(handle),
        }
    }
    let text = chain(&scene.finish(two_tables(&scene)).await.unwrap_err());
    assert!(
        text.contains("is torn") && text.contains("sink \"left\"") && text.contains("sink \"right\""),
        "{text}"
    );
    assert!(
        !scene.target.take_calls().iter().any(|call| call.starts_with("fence") || call.starts_with("abort"))
    );
}

/// Until the segments up to 600 are sent, or refused; the transactions of the other sink are gone then.
async fn gone_behind_segments(scene: &Scene, segments: &Segments, are_sent: bool) {
    let mut job = scene.start(table_and_segments(scene, segments));
    scene.resolve(&job, 300, 2).await;
    // The commits of the table hang: only what the segments' sink does becomes visible.
    scene.target.lock().hangs = true;
    segments.lock().is_closed = !are_sent;
    scene.reach(&job, 600, 2).await;
    job.trigger_checkpoint().await.unwrap();
    if are_sent {
        segments.wait_for(600).await;
    }
    job.cancel();
    job.wait().await.unwrap_err();
    scene.target.lock().hangs = false;
    segments.lock().is_closed = false;
    scene.target.expire(&scene.target.in_phase(Phase::PreCommitted));
}

/// [TPL-12] The markers of a write-ahead sink tell that its segments were sent: going back would send them again.
#[tokio::test]
async fn segments_that_were_sent_forbid_a_roll_back() {
    let (scene, segments) = (Scene::new().await, Segments::default());
    gone_behind_segments(&scene, &segments, true).await;
    let error = scene.finish(table_and_segments(&scene, &segments)).await.unwrap_err();
    let text = chain(&error);
    assert!(text.contains("is torn") && text.contains("sink \"segments\""), "{text}");
    assert_eq!(segments.visible(), up_to(600));
}

/// [TPL-12] Segments that were not sent go with the checkpoint that held them, and are read again.
#[tokio::test]
async fn segments_that_wait_are_rolled_back_with_the_others() {
    let (scene, segments) = (Scene::new().await, Segments::default());
    gone_behind_segments(&scene, &segments, false).await;
    scene.finish(table_and_segments(&scene, &segments)).await.unwrap();
    assert_eq!((segments.visible(), scene.target.visible()), (all(), all()));
}
