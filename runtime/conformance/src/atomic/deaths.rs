//! Processes that die, at every call, in the middle of a commit, and at random.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use levada_core::{AtomicSink, Positions};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::log::{Owner, Splits, must_be_fenced};
use super::{AtomicTarget, SCENARIOS};
use crate::failure::{Failure, Finding};
use crate::fuse::{Fuse, SIDES};
use crate::history::side;
use crate::stage::Stage;

const SPLITS: u32 = 3;

async fn run<'a, T: AtomicTarget>(
    stage: &mut Stage,
    target: &'a T,
    seed: Option<u64>,
    steps: impl AsyncFnOnce(&mut Splits<'a, T>) -> Result<(), Finding>,
) -> Result<bool, Failure> {
    let (job, range) = stage.next();
    let fuse = Fuse::default();
    let mut splits = Splits::new(target, fuse.clone(), job, range, SPLITS);
    let ran = Box::pin(steps(&mut splits)).await;
    ran.map_err(|finding| stage.failure(&fuse, seed, finding))?;
    Ok(fuse.has_burnt())
}

/// Writes an interval and commits it. Returns what a process that dies in it leaves open: it may be committed or not.
async fn interval<T: AtomicTarget>(
    at: &mut Splits<'_, T>,
    owners: &mut [Owner<T::Sink>],
) -> Result<(), (Finding, Vec<Positions>)> {
    let parallelism = owners.len() as u32;
    for index in 0..SPLITS {
        let owner = &mut owners[(index % parallelism) as usize];
        at.write(owner, index, 2).await.map_err(|finding| (finding, Vec::new()))?;
    }
    for owner in owners {
        let attempted = vec![owner.moved.clone()];
        at.commit(owner).await.map_err(|finding| (finding, attempted))?;
    }
    Ok(())
}

/// The process dies before and behind every call; the next one goes on from the positions that its claims return.
///
/// # Errors
/// The sink does something else.
pub async fn crash_at_every_call_loses_and_doubles_nothing<T: AtomicTarget>(
    target: &T,
) -> Result<(), Failure> {
    let mut stage = Stage::new("crash_at_every_call_loses_and_doubles_nothing", SCENARIOS);
    for side in SIDES {
        let mut calls = 0;
        while run(&mut stage, target, None, async |at| {
            at.fuse.light(calls, side);
            let lived = life(at).await;
            if !at.fuse.is_dead() {
                return lived.map_err(|(finding, _)| finding);
            }
            at.fuse.revive();
            let attempted = lived.err().map(|(_, attempted)| attempted).unwrap_or_default();
            let mut owners = at.recovered(2, &attempted).await?;
            at.check().await?;
            interval(at, &mut owners).await.map_err(|(finding, _)| finding)?;
            at.check().await
        })
        .await?
        {
            calls += 1;
        }
    }
    Ok(())
}

async fn life<T: AtomicTarget>(at: &mut Splits<'_, T>) -> Result<(), (Finding, Vec<Positions>)> {
    let mut owners = at.claimed(2).await.map_err(|finding| (finding, Vec::new()))?;
    interval(at, &mut owners).await?;
    interval(at, &mut owners).await
}

/// How often a commit is polled at most before it is cut off.
const POLLS: usize = 100;

/// The future of a commit is dropped behind its first poll, its second and so on, and the sink with it: rows and positions
/// are there or not, together.
///
/// # Errors
/// The sink does something else.
pub async fn commit_that_is_cut_off_is_all_or_nothing<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("commit_that_is_cut_off_is_all_or_nothing", SCENARIOS);
    for polls in 0..POLLS {
        let mut is_whole = false;
        run(&mut stage, target, None, async |at| {
            let mut owners = at.claimed(1).await?;
            interval(at, &mut owners).await.map_err(|(finding, _)| finding)?;
            let Some(mut owner) = owners.pop() else { return Ok(()) };
            at.write(&mut owner, 0, 3).await?;
            at.write(&mut owner, 1, 3).await?;
            at.fuse.note(format!("the process dies behind poll {polls} of its commit"));
            is_whole = cut_off(owner.sink.commit(&owner.moved), polls).await.is_some();
            let attempted = [owner.moved.clone()];
            drop(owner);
            let mut owners = at.recovered(1, &attempted).await?;
            at.check().await?;
            interval(at, &mut owners).await.map_err(|(finding, _)| finding)?;
            at.check().await
        })
        .await?;
        if is_whole {
            break;
        }
    }
    Ok(())
}

/// Polls a future so many times; without an outcome by then it is dropped.
async fn cut_off<V>(future: impl Future<Output = V>, polls: usize) -> Option<V> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Random histories: writes, commits, discards, deaths at random calls, and takeovers whose earlier owner goes on.
///
/// # Errors
/// The sink does something else. The failure has a seed, from which the history can be played again.
pub async fn random_histories_agree_with_the_model<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    let mut stage = Stage::new("random_histories_agree_with_the_model", SCENARIOS);
    for seed in target.histories().seeds() {
        let mut rng = StdRng::seed_from_u64(seed);
        run(&mut stage, target, Some(seed), async |at| random(at, &mut rng).await).await?;
    }
    Ok(())
}

async fn random<T: AtomicTarget>(at: &mut Splits<'_, T>, rng: &mut StdRng) -> Result<(), Finding> {
    let mut owners = at.claimed(rng.random_range(1..=3)).await?;
    for _ in 0..rng.random_range(1..12) {
        if rng.random_range(0..3) == 0 {
            at.fuse.light(rng.random_range(0..8), side(rng));
        }
        let place = rng.random_range(0..owners.len());
        let attempted = vec![owners[place].moved.clone()];
        let happened = happen(at, &mut owners, place, rng).await;
        if at.fuse.is_dead() {
            at.fuse.revive();
            owners.clear();
            owners = at.recovered(rng.random_range(1..=3), &attempted).await?;
        } else {
            happened?;
        }
        at.check().await?;
    }
    Ok(())
}

async fn happen<T: AtomicTarget>(
    at: &mut Splits<'_, T>,
    owners: &mut Vec<Owner<T::Sink>>,
    place: usize,
    rng: &mut StdRng,
) -> Result<(), Finding> {
    let parallelism = owners.len() as u32;
    let owner = &mut owners[place];
    match rng.random_range(0..10) {
        0..=4 => {
            let own = (0..SPLITS).filter(|index| index % parallelism == place as u32).collect::<Vec<_>>();
            at.write(owner, own[rng.random_range(0..own.len())], rng.random_range(1..5)).await
        }
        5..=7 => at.commit(owner).await,
        8 => {
            at.discard(owner);
            Ok(())
        }
        _ => take_over(at, owners, rng).await,
    }
}

/// Another process claims all splits, and the earlier one does not notice before its commits.
async fn take_over<T: AtomicTarget>(
    at: &mut Splits<'_, T>,
    owners: &mut Vec<Owner<T::Sink>>,
    rng: &mut StdRng,
) -> Result<(), Finding> {
    let later = at.claimed(rng.random_range(1..=3)).await?;
    for mut earlier in std::mem::replace(owners, later) {
        if earlier.moved.is_empty() {
            continue;
        }
        let committed = earlier.sink.commit(&earlier.moved).await;
        if !at.fuse.is_dead() {
            must_be_fenced("commit after a takeover", committed)?;
        }
    }
    Ok(())
}
