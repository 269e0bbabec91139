//! [CHK-19] Jobs that are dropped at any moment.

use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, Drain};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::heavy::heavy_job;
use crate::scene::{Scene, all, restarts};
use crate::target::Phase;

/// How often jobs are dropped in all, in a store in memory.
fn drops() -> u32 {
    if std::env::var_os("LEVADA_CRASH_LONG").is_some() { 2000 } else { 300 }
}

/// How often in one store.
const DROPS_A_STORE: u32 = 20;

/// Asks for checkpoints, savepoints and stops until the job ends.
async fn pester(job: &CheckpointedHandle, dice: &mut StdRng) {
    loop {
        match dice.random_range(0..10) {
            0 => drop(job.savepoint().await),
            1 => drop(job.stop_with_savepoint(Drain::No).await),
            2 => drop(job.stop().await),
            _ => drop(job.trigger_checkpoint().await),
        }
        tokio::task::yield_now().await;
    }
}

/// Drops a job after so many turns of the runtime.
async fn dropped_after(job: CheckpointedHandle, turns: u32, dice: &mut StdRng) {
    let countdown = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = countdown => {}
        () = pester(&job, dice) => {}
    }
    drop(job);
}

async fn interrupted_often(store: Store, drops: u32, turns: u32, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    let scene = Scene::over(store);
    for _ in 0..drops {
        scene.gate.raise(dice.random_range(0..1200));
        if dice.random_range(0..4) == 0 {
            *scene.gate.fail_at.lock().unwrap() = Some(dice.random_range(0..1000));
        }
        let parallelism = dice.random_range(1..5);
        let ballast = [10, 10_000][dice.random_range(0..2)];
        // The one before is still ending itself: it is overtaken, as by another process.
        let job = heavy_job(&scene, parallelism, ballast).restarts(restarts(2)).take_over();
        let turns = dice.random_range(0..turns);
        dropped_after(scene.start(job), turns, &mut dice).await;
    }
    *scene.gate.fail_at.lock().unwrap() = None;
    let outcome = scene.finish(heavy_job(&scene, 2, 10).take_over()).await;
    outcome.unwrap_or_else(|error| panic!("seed {seed}: {}", crate::scene::chain(&error)));
    assert_eq!(scene.target.visible(), all(), "seed {seed}");
    assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0], "seed {seed}");
    assert_eq!(scene.store.verify().await.unwrap().damages, [], "seed {seed}");
}

/// [CHK-19] [CHK-15] Overtaken while it still ends itself, with checkpoints, savepoints, stops and failures under way.
#[tokio::test(start_paused = true)]
async fn jobs_that_are_dropped_at_any_moment_lose_and_double_nothing() {
    for seed in 0..u64::from(drops() / DROPS_A_STORE) {
        let store = Store::open("memory:").await.unwrap();
        interrupted_often(store, DROPS_A_STORE, 400, seed).await;
    }
}

/// [CHK-19] [CHK-15] The same where the store's answers take their time.
#[tokio::test]
async fn jobs_over_a_directory_that_are_dropped_at_any_moment_lose_and_double_nothing() {
    for seed in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).await.unwrap();
        interrupted_often(store, 10, 4000, seed).await;
    }
}
