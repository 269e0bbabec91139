//! A job with checkpoints, from Kafka into files: the positions of the topic are in the checkpoints.

use levada_core::ErrorChain;
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, CheckpointedReport, JobError};
use levada_testcontainers::wait_until;
use levada_tests::checkpointed::{Feed, Published, Scene, Target, Told, job};
use levada_tests::process::PATIENCE;
use tokio::runtime::Runtime;

const PROGRAM: &str = env!("CARGO_BIN_EXE_checkpointed-under-test");

fn start(runtime: &Runtime, told: &Told) -> CheckpointedHandle {
    runtime.block_on(async {
        let store = Store::open(&told.home.join("store").display().to_string()).await.expect("a store");
        job(told).start(store).expect("a job of good shape")
    })
}

fn run_to_the_end(runtime: &Runtime, told: Told) -> Result<CheckpointedReport, JobError> {
    let mut running = start(runtime, &Told { until_now: true, ..told });
    runtime.block_on(running.wait())
}

/// [CHK-10] [CHK-12] [TPL-16] two subtasks read a part of the topic and are stopped, four read on from the positions in the
/// checkpoint.
#[test]
fn job_reads_on_with_more_subtasks_from_the_positions_in_its_checkpoint() {
    let scene = Scene::new(PROGRAM, Target::Files);
    let runtime = Runtime::new().expect("a runtime");
    let mut feed = Feed::into(scene.topic());
    let mut published = Published::of(scene.home());
    feed.send(5000);

    let mut two = start(&runtime, &scene.told(2));
    let has_begun = || published.look().is_ok_and(|()| published.records() > 0);
    wait_until(PATIENCE, "published values", has_begun).expect("the job publishes");
    // It is stopped somewhere in these.
    feed.send(5000);
    let last = runtime.block_on(two.stop()).expect("a last checkpoint");
    let report = runtime.block_on(two.wait()).expect("a good end");
    assert_eq!(report.last, Some(last), "what the last checkpoint covers is published");

    feed.send(5000);
    let fed = feed.end();
    let report = run_to_the_end(&runtime, scene.told(4)).expect("a good end");
    assert!(report.last > Some(last), "{report:?} after {last}");
    let published = Published::judge_all(scene.home(), &fed).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(published.records(), 15_000);
    assert_eq!(Published::waiting(scene.home()).expect("the folder"), Vec::<std::path::PathBuf>::new());
}

/// [SRC-07] a topic of the same name that was made anew is another one: its offsets have another meaning.
#[test]
fn topic_that_was_made_anew_is_refused_with_both_ids() {
    let scene = Scene::new(PROGRAM, Target::Files);
    let runtime = Runtime::new().expect("a runtime");
    let mut feed = Feed::into(scene.topic());
    feed.send(1000);
    let fed = feed.end();
    run_to_the_end(&runtime, scene.told(2)).expect("a good end");
    let before = scene.topic_id();

    let scene = scene.with_topic_made_anew();
    let mut other_feed = Feed::into(scene.topic());
    other_feed.send(2000);
    other_feed.end();
    let after = scene.topic_id();
    assert_ne!(before, after);
    let error = run_to_the_end(&runtime, scene.told(2)).expect_err("another topic");
    let text = ErrorChain(&error).to_string();
    assert!(text.contains(&before) && text.contains(&after), "{before} and {after} are in {text:?}");
    Published::judge_all(scene.home(), &fed).expect("nothing of the other topic was published");
}
