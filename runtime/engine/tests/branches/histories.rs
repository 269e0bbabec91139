//! Random routes, failures and checkpoints against a naive model: where a number belongs is known from the number alone.

use levada_engine::driver::TwoPhaseOptions;
use levada_engine::{CheckpointedJob, Route};
use proptest::prelude::*;

use crate::scene::{Scene, WAYS, memory, restarting, way};

const END: u64 = 240;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Main,
    Side,
    Inner,
}

/// What a test does to a job while it runs.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Lets so many more numbers pass, and takes a checkpoint.
    Checkpoint(u64),
    /// Lets a sink fail when it next meets a number not below this one.
    Fail(Place, u64),
    /// The same for the sink of the copies.
    FailRows(u64),
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![Just(Place::Main), Just(Place::Side), Just(Place::Inner)]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (1..END / 4).prop_map(Deed::Checkpoint),
        1 => (place(), 0..END).prop_map(|(place, at)| Deed::Fail(place, at)),
        1 => (0..END).prop_map(Deed::FailRows),
    ]
}

/// Copies leave behind an exchange; the side line exchanges, and another line leaves it.
fn job(scene: &Scene, parallelism: u32, routes: Vec<Place>) -> CheckpointedJob {
    let options = TwoPhaseOptions::default();
    let (main, side, inner, rows) =
        (scene.main.clone(), scene.side.clone(), scene.inner.clone(), scene.rows.clone());
    let place_of = move |number: u64| routes[number as usize % routes.len()];
    let place_in_side = place_of.clone();
    let job = scene
        .numbers(parallelism, END)
        .side_output(
            "side",
            move |number| match place_of(*number.item()) {
                Place::Main => Ok(Route::Main(*number.item())),
                _ => Ok(Route::Side(number.item().to_string())),
            },
            |texts| {
                texts
                    .map("read", |text| Ok(text.item().parse::<u64>()?))
                    .key_by("side by way", way)
                    .side_output(
                        "inner",
                        move |number| match place_in_side(*number.item()) {
                            Place::Inner => Ok(Route::Side(*number.item())),
                            _ => Ok(Route::Main(number.item().to_string())),
                        },
                        |inners| inners.two_phase_sink("inner table", options, move |_| inner.clone()),
                    )
                    .two_phase_sink("side table", options, move |_| side.clone())
            },
        )
        .key_by("by way", way)
        .tee("copies", |copies| copies.idempotent_sink("rows", move |_| rows.clone()))
        .filter("all", |_| true)
        .two_phase_sink("main table", options, move |_| main.clone());
    restarting(job)
}

async fn play(scene: &Scene, parallelism: u32, routes: &[Place], deeds: &[Deed]) {
    let mut job = job(scene, parallelism, routes.to_vec()).start(memory().await).unwrap();
    let mut up_to = 0;
    for deed in deeds {
        match deed {
            Deed::Checkpoint(more) => {
                up_to += more;
                scene.gate.raise(up_to);
                // One that a failure overtakes is not taken.
                job.trigger_checkpoint().await.ok();
            }
            Deed::Fail(Place::Main, at) => scene.main.fault.set(*at),
            Deed::Fail(Place::Side, at) => scene.side.fault.set(*at),
            Deed::Fail(Place::Inner, at) => scene.inner.fault.set(*at),
            Deed::FailRows(at) => scene.rows.fault.set(*at),
        }
    }
    scene.gate.raise(END);
    job.wait().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// [CHK-02] [CHK-07] [CHK-08] [TPL-01] every record is in exactly the right table, in the order of its key.
    #[test]
    fn every_record_is_in_its_table_once_whatever_fails(
        parallelism in 1..4_u32,
        routes in prop::collection::vec(place(), 1..8),
        deeds in prop::collection::vec(deed(), 0..8),
    ) {
        let scene = Scene::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(&scene, parallelism, &routes, &deeds));
        let belonging = |place| {
            let belongs = |number: &u64| routes[*number as usize % routes.len()] == place;
            (0..END).filter(belongs).collect::<Vec<_>>()
        };
        prop_assert_eq!(scene.main.sorted(), belonging(Place::Main));
        prop_assert_eq!(scene.side.sorted(), belonging(Place::Side));
        prop_assert_eq!(scene.inner.sorted(), belonging(Place::Inner));
        prop_assert_eq!(scene.rows.numbers(), belonging(Place::Main));
        for table in [&scene.main, &scene.side, &scene.inner] {
            let visible = table.visible();
            for key in 0..WAYS {
                prop_assert!(visible.iter().filter(|number| way(number) == key).is_sorted());
            }
        }
    }
}
