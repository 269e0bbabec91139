//! Several owners, and who of them may commit.

use levada_core::AtomicSink;

use super::AtomicTarget;
use super::commits::run;
use super::log::{assignment, must_be_fenced, split};
use crate::failure::Failure;

/// A claim makes every earlier owner's commit impossible before it reads the positions.
///
/// # Errors
/// The sink does something else.
pub async fn claim_fences_the_earlier_owner<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "claim_fences_the_earlier_owner", 1, async |mut at| {
        let mut earlier = at.one().await?;
        at.claim(&mut earlier, &[0]).await?;
        at.write(&mut earlier, 0, 2).await?;
        at.commit(&mut earlier).await?;
        at.write(&mut earlier, 0, 3).await?;

        let mut later = at.one().await?;
        at.claim(&mut later, &[0]).await?;
        must_be_fenced("commit after a takeover", earlier.sink.commit(&earlier.moved).await)?;
        at.check().await?;
        at.write(&mut later, 0, 4).await?;
        at.commit(&mut later).await?;
        must_be_fenced("commit after a takeover", earlier.sink.commit(&earlier.moved).await)?;
        at.check().await
    })
    .await
}

/// Of an interval with a split that somebody else has claimed nothing becomes visible, whatever else is in it.
///
/// # Errors
/// The sink does something else.
pub async fn lost_split_takes_the_whole_interval_with_it<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "lost_split_takes_the_whole_interval_with_it", 2, async |mut at| {
        for taken in [0, 1] {
            let mut earlier = at.one().await?;
            at.claim(&mut earlier, &[0, 1]).await?;
            at.write(&mut earlier, 0, 2).await?;
            at.write(&mut earlier, 1, 2).await?;
            let mut later = at.one().await?;
            at.claim(&mut later, &[taken]).await?;
            must_be_fenced("commit with a lost split", earlier.sink.commit(&earlier.moved).await)?;
            at.check().await?;
            at.write(&mut later, taken, 1).await?;
            at.commit(&mut later).await?;
            at.check().await?;
        }
        Ok(())
    })
    .await
}

/// A sink that still believes to hold a split does not take it back by claiming it again.
///
/// # Errors
/// The sink does something else.
pub async fn claim_of_a_split_that_was_lost_is_refused<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "claim_of_a_split_that_was_lost_is_refused", 1, async |mut at| {
        let mut earlier = at.one().await?;
        at.claim(&mut earlier, &[0]).await?;
        at.claim(&mut earlier, &[0]).await?;
        let mut later = at.one().await?;
        at.claim(&mut later, &[0]).await?;
        let again = earlier.sink.claim(&assignment(&[0], 1, 0, 0)).await;
        must_be_fenced("claim a split that was lost", again)?;
        at.write(&mut later, 0, 2).await?;
        at.commit(&mut later).await?;
        at.check().await
    })
    .await
}

/// After a commit that was refused: discard, release, claim, and on with it.
///
/// # Errors
/// The sink does something else.
pub async fn sink_stays_usable_when_it_was_fenced<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "sink_stays_usable_when_it_was_fenced", 2, async |mut at| {
        let mut earlier = at.one().await?;
        at.claim(&mut earlier, &[0, 1]).await?;
        at.write(&mut earlier, 0, 2).await?;
        at.write(&mut earlier, 1, 2).await?;
        let mut later = at.one().await?;
        at.claim(&mut later, &[1]).await?;
        must_be_fenced("commit with a lost split", earlier.sink.commit(&earlier.moved).await)?;
        at.discard(&mut earlier);
        earlier.sink.release(&[split(1)]);
        at.claim(&mut earlier, &[0]).await?;
        at.write(&mut earlier, 0, 3).await?;
        at.commit(&mut earlier).await?;
        at.check().await?;
        // The split that was lost is given back.
        at.write(&mut later, 1, 1).await?;
        at.claim(&mut earlier, &[1]).await?;
        must_be_fenced("commit a split that was taken back", later.sink.commit(&later.moved).await)?;
        at.write(&mut earlier, 1, 2).await?;
        at.commit(&mut earlier).await?;
        at.check().await
    })
    .await
}

/// A split that was given up goes on where its last commit has left it, here and there and here again.
///
/// # Errors
/// The sink does something else.
pub async fn released_split_goes_on_where_it_was<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "released_split_goes_on_where_it_was", 2, async |mut at| {
        let mut owners = at.process(2).await?;
        for round in 0..4 {
            let owner = &mut owners[round % 2];
            at.claim(owner, &[0]).await?;
            at.write(owner, 0, 2).await?;
            at.commit(owner).await?;
            owner.sink.release(&[split(0)]);
            at.check().await?;
        }
        Ok(())
    })
    .await
}

/// Processes with 2, 1, 4 and 3 subtasks follow each other; the one before is not closed, and has an open interval.
///
/// # Errors
/// The sink does something else.
pub async fn splits_move_with_a_change_of_parallelism<T: AtomicTarget>(target: &T) -> Result<(), Failure> {
    run(target, "splits_move_with_a_change_of_parallelism", 4, async |mut at| {
        let mut earlier = Vec::new();
        for parallelism in [2, 1, 4, 3] {
            let mut owners = at.claimed(parallelism).await?;
            for owner in &mut earlier {
                let super::log::Owner { sink, moved, .. } = owner;
                must_be_fenced("commit after a takeover", AtomicSink::<T::Item>::commit(sink, moved).await)?;
            }
            at.check().await?;
            for index in 0..4 {
                at.write(&mut owners[(index % parallelism) as usize], index, 2).await?;
            }
            for owner in &mut owners {
                at.commit(owner).await?;
            }
            at.check().await?;
            for index in 0..4 {
                at.write(&mut owners[(index % parallelism) as usize], index, 1).await?;
            }
            earlier = owners;
        }
        Ok(())
    })
    .await
}
