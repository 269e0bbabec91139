//! What the builder refuses, and what becomes of refused records.

use levada_engine::driver::TwoPhaseOptions;
use levada_engine::{JobError, Route, ShapeError, StageKind};

use crate::scene::{Scene, memory};

/// Names of stages find state again: they are unique over all lines.
#[tokio::test]
async fn name_that_a_branch_shares_with_another_line_is_refused() {
    let scene = Scene::default();
    let (main, side) = (scene.main.clone(), scene.side.clone());
    let job = scene
        .numbers(1, 10)
        .tee("copies", |copy| {
            copy.map("same", |number| Ok(*number.item())).two_phase_sink(
                "table",
                TwoPhaseOptions::default(),
                move |_| side.clone(),
            )
        })
        .filter("evens", |number| number.item() % 2 == 0)
        .two_phase_sink("table", TwoPhaseOptions::default(), move |_| main.clone());
    let refusal = job.start(memory().await).unwrap_err();
    let kind = StageKind::CheckpointedSink;
    let expected = ShapeError::RepeatedUid {
        uid: "table".to_owned(),
        first: kind,
        first_place: 4,
        second: kind,
        second_place: 6,
    };
    assert_eq!(refusal, expected);
    let message = refusal.to_string();
    assert!(message.contains("stage 4 (checkpointed sink) and stage 6 (checkpointed sink)"), "{message}");
}

/// [TPL-23] the engine's part: whichever line a record is refused in, it is refused once, as it was read.
#[tokio::test]
async fn record_refused_in_any_line_ends_the_job_with_its_coordinates() {
    for place in ["before", "route", "branch", "main"] {
        let scene = Scene::default();
        scene.gate.raise(50);
        let (main, side, rows) = (scene.main.clone(), scene.side.clone(), scene.rows.clone());
        let refuse = move |at: &str, number: u64, bad: u64| match place == at && number == bad {
            true => Err(format!("{at} does not want {number}")),
            false => Ok(number),
        };
        let job = scene
            .numbers(1, 50)
            .map("first", move |number| Ok(refuse("before", *number.item(), 9)?))
            .tee("copies", |copy| copy.idempotent_sink("rows", move |_| rows.clone()))
            .side_output(
                "evens",
                move |number| match refuse("route", *number.item(), 9)? {
                    even if even % 2 == 0 => Ok(Route::Side(even)),
                    odd => Ok(Route::Main(odd)),
                },
                |evens| {
                    evens
                        .map("in branch", move |number| Ok(refuse("branch", *number.item(), 8)?))
                        .two_phase_sink("side", TwoPhaseOptions::default(), move |_| side.clone())
                },
            )
            .map("last", move |number| Ok(refuse("main", *number.item(), 9)?))
            .two_phase_sink("main", TwoPhaseOptions::default(), move |_| main.clone());
        let error = job.start(memory().await).unwrap().wait().await.unwrap_err();
        let JobError::Refused { coordinates, reason } = error else { panic!("{error}") };
        let bad = if place == "branch" { 8 } else { 9 };
        assert_eq!(coordinates.to_string(), format!("numbers-0@{bad}"));
        assert_eq!(reason.to_string(), format!("{place} does not want {bad}"));
    }
}
