//! The scenarios.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::table::{Change, Table, log};
use super::{IdempotentTarget, SCENARIOS};
use crate::failure::{Failure, Finding};
use crate::fuse::{Fuse, SIDES, Side};
use crate::history::side;
use crate::stage::Stage;

/// A log in which every key is changed several times.
fn sample<T: IdempotentTarget>(target: &T) -> Vec<Change> {
    log(&mut StdRng::seed_from_u64(7), 24, target.deletion(1).is_some())
}

async fn run<T: IdempotentTarget>(
    stage: &mut Stage,
    target: &T,
    log: &[Change],
    seed: Option<u64>,
    steps: impl AsyncFnOnce(&mut Table<'_, T>, &Fuse) -> Result<(), Finding>,
) -> Result<bool, Failure> {
    let (job, range) = stage.next();
    let fuse = Fuse::default();
    let mut table = Table::new(target, fuse.clone(), job, range, log);
    let ran = Box::pin(steps(&mut table, &fuse)).await;
    ran.map_err(|finding| stage.failure(&fuse, seed, finding))?;
    Ok(fuse.has_burnt())
}

/// Of several versions of a key the last one stays, within a batch and across batches.
///
/// # Errors
/// The sink does something else.
pub async fn last_version_of_each_key_stays<T: IdempotentTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("last_version_of_each_key_stays", SCENARIOS);
    let log = sample(target);
    for parallelism in [1, 2] {
        run(&mut stage, target, &log, None, async |table, _| {
            table.start(parallelism, 0).await?;
            table.end().await
        })
        .await?;
    }
    Ok(())
}

/// What was written before a barrier is in the table behind it, also when the process dies then and nothing is replayed.
///
/// # Errors
/// The sink does something else.
pub async fn everything_is_durable_before_the_barrier_goes_on<T: IdempotentTarget>(
    target: &T,
) -> Result<(), Failure> {
    let mut stage = Stage::new("everything_is_durable_before_the_barrier_goes_on", SCENARIOS);
    let log = sample(target);
    run(&mut stage, target, &log, None, async |table, _| {
        table.start(2, 0).await?;
        while !table.is_at_end() {
            table.write(5).await?;
            table.barrier().await?;
            table.start(2, table.covered).await?;
            table.check().await?;
        }
        Ok(())
    })
    .await
    .map(drop)
}

/// A stream that ends is in the table before the close, with and without earlier barriers, and also when it was empty.
///
/// # Errors
/// The sink does something else.
pub async fn bounded_end_writes_everything<T: IdempotentTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("bounded_end_writes_everything", SCENARIOS);
    let log = sample(target);
    for length in [0, 1, log.len()] {
        run(&mut stage, target, &log[..length], None, async |table, _| {
            table.start(2, 0).await?;
            table.write(length / 2).await?;
            table.barrier().await?;
            table.end().await
        })
        .await?;
    }
    Ok(())
}

/// After everything was written, each suffix of it is written again by another process, and nothing changes.
///
/// # Errors
/// The sink does something else.
pub async fn replay_of_any_suffix_converges<T: IdempotentTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("replay_of_any_suffix_converges", SCENARIOS);
    let log = sample(target);
    run(&mut stage, target, &log, None, async |table, _| {
        table.start(2, 0).await?;
        table.end().await?;
        for from in 0..=log.len() {
            table.start(2, from).await?;
            table.end().await?;
        }
        Ok(())
    })
    .await
    .map(drop)
}

/// The same with another number of subtasks at each start.
///
/// # Errors
/// The sink does something else.
pub async fn replay_by_other_subtasks_converges<T: IdempotentTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("replay_by_other_subtasks_converges", SCENARIOS);
    let log = sample(target);
    run(&mut stage, target, &log, None, async |table, _| {
        for (parallelism, from) in [(2, 0), (1, 6), (2, 3), (4, 9), (3, 0)] {
            table.start(parallelism, from).await?;
            table.write(6).await?;
            table.barrier().await?;
            table.write(3).await?;
        }
        table.end().await
    })
    .await
    .map(drop)
}

/// The process dies before and behind every call; the next one replays from the newest checkpoint.
///
/// # Errors
/// The sink does something else.
pub async fn crash_at_every_call_converges<T: IdempotentTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("crash_at_every_call_converges", SCENARIOS);
    let log = sample(target);
    for side in SIDES {
        let mut calls = 0;
        while run(&mut stage, target, &log, None, async |table, fuse| {
            table.start(2, 0).await?;
            fuse.light(calls, side);
            let lived = live(table).await;
            if !fuse.is_dead() {
                return lived;
            }
            table.start(2, table.covered).await?;
            table.end().await
        })
        .await?
        {
            calls += 1;
        }
    }
    Ok(())
}

async fn live<T: IdempotentTarget>(table: &mut Table<'_, T>) -> Result<(), Finding> {
    table.write(6).await?;
    table.barrier().await?;
    table.write(6).await?;
    table.barrier().await?;
    table.end().await
}

/// Random logs, with crashes at random calls and replays from random places at or before the newest checkpoint.
///
/// # Errors
/// The sink does something else. The failure has a seed, from which the history can be played again.
pub async fn random_histories_converge<T: IdempotentTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("random_histories_converge", SCENARIOS);
    for seed in target.histories().seeds() {
        let mut rng = StdRng::seed_from_u64(seed);
        let length = rng.random_range(1..40);
        let log = log(&mut rng, length, target.deletion(1).is_some());
        run(&mut stage, target, &log, Some(seed), async |table, fuse| {
            table.start(rng.random_range(1..=3), 0).await?;
            for _ in 0..rng.random_range(0..6) {
                happen(table, fuse, &mut rng).await?;
            }
            table.start(rng.random_range(1..=3), table.covered).await?;
            table.end().await
        })
        .await?;
    }
    Ok(())
}

async fn happen<T: IdempotentTarget>(
    table: &mut Table<'_, T>,
    fuse: &Fuse,
    rng: &mut StdRng,
) -> Result<(), Finding> {
    let side: Side = side(rng);
    if rng.random() {
        fuse.light(rng.random_range(0..6), side);
    }
    let lived = async {
        table.write(rng.random_range(1..8)).await?;
        if rng.random() {
            table.barrier().await?;
        }
        Ok(())
    }
    .await;
    if !fuse.is_dead() {
        lived?;
    }
    if fuse.is_dead() || rng.random_range(0..3) == 0 {
        let from = rng.random_range(0..=table.covered);
        table.start(rng.random_range(1..=3), from).await?;
    }
    Ok(())
}
