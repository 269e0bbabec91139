//! One owner, and what it commits.

use levada_core::{AtomicSink, Position, Positions};

use super::log::{Splits, assignment, check_pending, must, split};
use super::{AtomicTarget, SCENARIOS};
use crate::failure::{Failure, Finding};
use crate::stage::Stage;

pub(super) async fn run<'a, T: AtomicTarget>(
    target: &'a T,
    scenario: &'static str,
    splits: u32,
    steps: impl AsyncFnOnce(Splits<'a, T>) -> Result<(), Finding>,
) -> Result<(), Failure> {
    let stage = Stage::new(scenario, SCENARIOS);
    stage.run(async |fuse, job, range| steps(Splits::new(target, fuse, job, range, splits)).await).await
}

/// Records that were written are invisible until the commit, and gone when the process dies before it.
///
/// # Errors
/// The sink does something else.
pub async fn nothing_is_visible_before_a_commit<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "nothing_is_visible_before_a_commit", 2, async |mut at| {
        let mut owner = at.one().await?;
        at.claim(&mut owner, &[0, 1]).await?;
        check_pending::<_, T::Item>(&owner, false)?;
        at.write(&mut owner, 0, 3).await?;
        at.write(&mut owner, 1, 2).await?;
        check_pending::<_, T::Item>(&owner, true)?;
        at.check().await?;
        drop(owner);
        at.claimed(1).await?;
        at.check().await
    })
    .await
}

/// A commit makes its rows visible, and moves its positions to where another process goes on.
///
/// # Errors
/// The sink does something else.
pub async fn rows_and_positions_are_committed_together<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "rows_and_positions_are_committed_together", 3, async |mut at| {
        let mut owner = at.one().await?;
        at.claim(&mut owner, &[0, 1, 2]).await?;
        for _ in 0..3 {
            at.write(&mut owner, 0, 3).await?;
            at.write(&mut owner, 2, 2).await?;
            at.write(&mut owner, 0, 1).await?;
            at.commit(&mut owner).await?;
            check_pending::<_, T::Item>(&owner, false)?;
            at.check().await?;
        }
        drop(owner);
        let mut owner = at.one().await?;
        at.claim(&mut owner, &[0, 1, 2]).await?;
        at.write(&mut owner, 1, 2).await?;
        at.commit(&mut owner).await?;
        at.check().await
    })
    .await
}

/// Positions also move without rows; a commit of nothing at all is no error.
///
/// # Errors
/// The sink does something else.
pub async fn interval_without_rows_commits_its_positions<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "interval_without_rows_commits_its_positions", 2, async |mut at| {
        let mut owner = at.one().await?;
        at.claim(&mut owner, &[0, 1]).await?;
        must("commit nothing", owner.sink.commit(&Positions::new()).await)?;
        owner.moved.set(split(0), Position::at(5));
        at.commit(&mut owner).await?;
        at.skipped(0, 5);
        at.check().await?;
        drop(owner);
        let mut owner = at.one().await?;
        at.claim(&mut owner, &[0, 1]).await?;
        at.write(&mut owner, 0, 2).await?;
        at.commit(&mut owner).await?;
        at.check().await
    })
    .await
}

/// What was discarded never becomes visible, and what is written again is there once.
///
/// # Errors
/// The sink does something else.
pub async fn discard_drops_the_whole_interval<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "discard_drops_the_whole_interval", 2, async |mut at| {
        let mut owner = at.one().await?;
        at.claim(&mut owner, &[0, 1]).await?;
        at.write(&mut owner, 0, 2).await?;
        at.commit(&mut owner).await?;
        at.write(&mut owner, 0, 4).await?;
        at.write(&mut owner, 1, 4).await?;
        at.discard(&mut owner);
        check_pending::<_, T::Item>(&owner, false)?;
        at.write(&mut owner, 0, 1).await?;
        at.commit(&mut owner).await?;
        at.check().await
    })
    .await
}

/// The first claim of a stream stores where all its splits start; one that appears later starts at its earliest record.
///
/// # Errors
/// The sink does something else.
pub async fn first_claim_stores_the_start_of_every_split<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "first_claim_stores_the_start_of_every_split", 3, async |at| {
        let mut first = at.one().await?;
        let claimed = must("claim", first.sink.claim(&assignment(&[0], 2, 7, 1)).await)?;
        check_position(&claimed, 0, 7)?;
        let mut later = at.one().await?;
        let claimed = must("claim", later.sink.claim(&assignment(&[1, 2], 3, 90, 3)).await)?;
        check_position(&claimed, 1, 7)?;
        check_position(&claimed, 2, 3)
    })
    .await
}

fn check_position(positions: &Positions, index: u32, expected: u64) -> Result<(), Finding> {
    match positions.get(&split(index)) {
        Some(position) if position.next == expected => Ok(()),
        Some(position) => Err(Finding::WrongPosition { split: index, expected, found: position.next }),
        None => Err(Finding::answer(format!("the position of split {index}"), expected, "none")),
    }
}

/// Subtasks of one process hold different splits, and commit them one without the other.
///
/// # Errors
/// The sink does something else.
pub async fn subtasks_commit_their_own_splits<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "subtasks_commit_their_own_splits", 4, async |mut at| {
        let mut owners = at.claimed(2).await?;
        for round in 0..3 {
            for (subtask, owner) in owners.iter_mut().enumerate() {
                at.write(owner, subtask as u32, 2).await?;
                at.write(owner, subtask as u32 + 2, 1).await?;
            }
            let [first, second] = &mut owners[..] else {
                return Err(Finding::answer("two sinks", 2, owners.len()));
            };
            let first_to_commit = if round == 1 { second } else { first };
            at.commit(first_to_commit).await?;
            at.check().await?;
            for owner in &mut owners {
                at.commit(owner).await?;
            }
            at.check().await?;
        }
        Ok(())
    })
    .await
}
