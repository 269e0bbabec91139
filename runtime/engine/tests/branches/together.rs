//! What the lines of a job do together: checkpoints, failures, stop and end.

use std::time::Duration;

use levada_core::Timestamp;
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::{CheckpointedJob, Route};

use crate::scene::{Scene, WAYS, memory, restarting, way};

const END: u64 = 900;

impl Scene {
    /// Multiples of four go into a side output, as text, and are exchanged there; the others are exchanged in the main
    /// line; a copy of all goes into rows.
    fn three_sinks(&self, parallelism: u32) -> CheckpointedJob {
        let (main, side, rows) = (self.main.clone(), self.side.clone(), self.rows.clone());
        let job = self
            .numbers(parallelism, END)
            .tee("copies", |copy| copy.idempotent_sink("rows", move |_| rows.clone()))
            .side_output(
                "fours",
                |number| match number.item() {
                    four if four % 4 == 0 => Ok(Route::Side(four.to_string())),
                    other => Ok(Route::Main(*other)),
                },
                |fours| {
                    fours
                        .map("as number", |text| Ok(text.item().parse::<u64>()?))
                        .key_by("fours by way", way)
                        .two_phase_sink("side", TwoPhaseOptions::default(), move |_| side.clone())
                },
            )
            .key_by("by way", way)
            .two_phase_sink("main", TwoPhaseOptions::default(), move |_| main.clone());
        restarting(job)
    }

    fn assert_all_are_where_they_belong(&self) {
        let (fours, others) = (0..END).partition::<Vec<u64>, _>(|number| number % 4 == 0);
        assert_eq!(self.side.sorted(), fours);
        assert_eq!(self.main.sorted(), others);
        assert_eq!(self.rows.numbers(), (0..END).collect::<Vec<_>>());
    }
}

/// [CHK-11] the last records of every line are visible before a bounded job ends.
#[tokio::test]
async fn bounded_job_commits_every_line_once() {
    let scene = Scene::default();
    scene.gate.raise(END);
    let report = scene.three_sinks(2).start(memory().await).unwrap().wait().await.unwrap();
    assert!(report.last.is_some());
    assert_eq!(report.restarts, 0);
    scene.assert_all_are_where_they_belong();
}

/// [CHK-02] [CHK-07] a checkpoint holds, over all sinks, exactly the records that its source snapshots stand behind.
#[tokio::test]
async fn barrier_parts_all_lines_at_the_same_records() {
    let scene = Scene::default();
    let mut job = scene.three_sinks(3).start(memory().await).unwrap();
    scene.gate.raise(END / 2);
    let mut checkpoints = Vec::new();
    for _ in 0..9 {
        // The sources are not held: they are wherever they are.
        checkpoints.push(job.trigger_checkpoint().await.unwrap());
    }
    scene.gate.raise(END);
    job.wait().await.unwrap();
    for checkpoint in checkpoints {
        let mut up_to = [scene.main.up_to(checkpoint), scene.side.up_to(checkpoint)].concat();
        up_to.sort_unstable();
        assert_eq!(up_to, scene.gate.before(checkpoint), "{checkpoint}");
    }
    scene.assert_all_are_where_they_belong();
}

/// [CHK-02] [CHK-08] a failure in the sink of any line takes all of them back to the same checkpoint.
#[tokio::test]
async fn failure_in_one_line_restores_all() {
    for failing in 0..3 {
        let scene = Scene::default();
        scene.gate.raise(END / 3);
        let mut job = scene.three_sinks(2).start(memory().await).unwrap();
        let first = job.trigger_checkpoint().await.unwrap();
        let faults = [&scene.main.fault, &scene.side.fault, &scene.rows.fault];
        faults[failing].set(END / 2);
        scene.gate.raise(END);
        let report = job.wait().await.unwrap();
        assert_eq!(report.restarts, 1);
        assert!(report.last > Some(first));
        scene.assert_all_are_where_they_belong();
    }
}

/// [CHK-10] [CHK-12] stopped with a last checkpoint of all lines, and started again with other parallelisms.
#[tokio::test]
async fn stopped_lines_go_on_with_more_and_with_fewer_subtasks() {
    let scene = Scene::default();
    let store = memory().await;
    for (parallelism, up_to) in [(2, 200), (4, 500), (3, END)] {
        scene.gate.raise(up_to);
        let mut job = scene.three_sinks(parallelism).start(store.clone()).unwrap();
        if up_to < END {
            job.stop().await.unwrap();
        }
        job.wait().await.unwrap();
        scene.gate.raise(0);
    }
    scene.assert_all_are_where_they_belong();
}

#[tokio::test]
async fn watermarks_go_down_every_line_in_their_places() {
    let scene = Scene::default();
    scene.gate.raise(END);
    let (main, side) = (scene.main.clone(), scene.side.clone());
    let job = scene
        .numbers(1, 100)
        .side_output(
            "fours",
            |number| match number.item() {
                four if four % 4 == 0 => Ok(Route::Side(four.to_string())),
                other => Ok(Route::Main(*other)),
            },
            |fours| fours.two_phase_sink("side", TwoPhaseOptions::default(), move |_| side.clone()),
        )
        .two_phase_sink("main", TwoPhaseOptions::default(), move |_| main.clone());
    job.start(memory().await).unwrap().wait().await.unwrap();
    let mut written = scene.main.watermarks();
    written.extend(scene.side.watermarks());
    assert_eq!(written.len(), 100);
    for (number, watermark) in written {
        // That of the number before, which went down the other line, or this one.
        let before = number.checked_sub(1).map_or(Timestamp(i64::MIN), |before| Timestamp(before as i64));
        assert_eq!(watermark, before, "at {number}");
    }
}

/// What a slow branch does not take is not read.
#[tokio::test(start_paused = true)]
async fn slow_branch_holds_the_source_and_loses_nothing() {
    let scene = Scene::default();
    scene.side.is_held.send_replace(true);
    scene.gate.raise(END);
    let mut job = scene.three_sinks(1).start(memory().await).unwrap();
    // The paused clock moves on when nothing else can.
    tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(1)).await;
    let read = scene.gate.emitted();
    assert!((1..20 * WAYS).contains(&read), "{read} numbers were read past a branch that takes none");
    scene.side.is_held.send_replace(false);
    job.wait().await.unwrap();
    scene.assert_all_are_where_they_belong();
}
