//! Sinks of which fewer subtasks write than there are.

use std::collections::BTreeSet;

use levada_engine::driver::LossPolicy;
use levada_engine::{CheckpointedJob, Job};

use crate::scene::{Scene, all, options, up_to};
use crate::target::Phase;

fn job(scene: &Scene, parallelism: u32, is_behind_an_exchange: bool) -> CheckpointedJob {
    let target = scene.target.clone();
    let flow = Job::new("count").parallelism(parallelism).source_function("numbers", scene.source());
    let make = move |_| target.sink("table");
    match is_behind_an_exchange {
        true => {
            let flow = flow.key_by("by last digit", |number| number % 10).filter("all", |_| true);
            flow.two_phase_sink("table", options(LossPolicy::Fail), make)
        }
        false => flow.two_phase_sink("table", options(LossPolicy::Fail), make),
    }
}

/// Returns the subtasks that have begun a transaction: a handle ends with its subtask's number.
fn have_written(scene: &Scene) -> BTreeSet<String> {
    let calls = scene.target.take_calls();
    let begun = calls.iter().filter(|call| call.starts_with("begin"));
    begun.filter_map(|call| Some(call.rsplit_once('-')?.1.to_owned())).collect()
}

/// [KSK-07] the default's part: one writer in a process, whatever the parallelism; every record is there once.
#[tokio::test]
async fn only_so_many_subtasks_write_as_the_sink_asks_for() {
    for (writers, behind_an_exchange, expected) in [
        (Some(1), false, &["0"][..]),
        (Some(1), true, &["0"]),
        (Some(2), false, &["0", "1"]),
        (Some(2), true, &["0", "1"]),
        (Some(3), false, &["0", "1", "2"]),
        (Some(9), false, &["0", "1", "2"]),
        (None, false, &["0", "1", "2"]),
    ] {
        let scene = Scene::new().await;
        scene.target.lock().writers = writers;
        scene.finish(job(&scene, 3, behind_an_exchange)).await.unwrap();
        let expected = expected.iter().map(|&subtask| subtask.to_owned()).collect();
        assert_eq!(have_written(&scene), expected, "{writers:?}");
        assert_eq!(scene.target.visible(), all());
    }
}

/// What one writer has pre-committed is committed by a job with more of them, and the other way round.
#[tokio::test]
async fn number_of_writers_can_change_between_two_starts() {
    for (before, after) in [(Some(1), None), (None, Some(1)), (Some(2), Some(1))] {
        let scene = Scene::new().await;
        scene.target.lock().writers = before;
        let mut running = scene.start(job(&scene, 3, false));
        scene.resolve(&running, 300, 3).await;
        scene.target.set_away(true);
        scene.reach(&running, 600, 3).await;
        running.trigger_checkpoint().await.unwrap();
        running.wait().await.unwrap_err();
        scene.target.set_away(false);
        assert_eq!(scene.target.visible(), up_to(300));
        scene.target.lock().writers = after;
        scene.finish(job(&scene, 2, true)).await.unwrap();
        assert_eq!(scene.target.visible(), all());
        assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
    }
}
