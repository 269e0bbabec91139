//! After the connection was lost: come back, take what is ours again, and find out what became of the last commit.

use std::collections::BTreeSet;

use levada_core::{Assignment, SinkError};
use tracing::info;

use super::PostgresSink;
use super::claim::Stored;
use super::commit::Move;
use super::error::fatal;
use super::failpoint;

/// What became of a commit whose connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed,
    NotCommitted,
}

/// Judges by the stored positions. A commit is one transaction, so they all moved or none did.
pub(crate) fn judge(moves: &[Move], stored: &[Stored]) -> Result<Outcome, SinkError> {
    let mut outcomes = BTreeSet::new();
    for moved in moves {
        let split = &moved.split;
        let Some(row) = stored.iter().find(|row| row.split == *split) else {
            return Err(fatal(format!("the row of split {split} is gone from levada.positions")));
        };
        if row.epoch != moved.epoch {
            return Err(SinkError::fenced(split.clone(), row.owner()));
        }
        if row.position != moved.from && row.position != moved.to {
            return Err(fatal(format!(
                "the position of split {split} is {}, neither {} as before the commit nor {} as after it: somebody has \
                 changed levada.positions without a claim",
                row.position, moved.from, moved.to
            )));
        }
        outcomes.insert(row.position == moved.to);
    }
    match (outcomes.contains(&true), outcomes.contains(&false)) {
        (true, false) => Ok(Outcome::Committed),
        (false, _) => Ok(Outcome::NotCommitted),
        (true, true) => Err(fatal(
            "positions of one commit have moved in part: somebody has changed levada.positions without a claim".to_owned(),
        )),
    }
}

impl PostgresSink {
    /// Comes back after a lost connection: claims everything again, at our own epochs only, and reads what became of
    /// the commit that moves `moves`.
    ///
    /// The claim waits for the old backend's locks, so that backend's transaction is over, one way or the other.
    pub(super) async fn reconnected(
        &mut self,
        pipeline: &str,
        moves: &mut [Move],
    ) -> Result<Outcome, SinkError> {
        let stored = self.claim_splits(pipeline, &Assignment::default()).await?;
        for moved in moves.iter_mut() {
            if let Some(row) = stored.iter().find(|row| row.split == moved.split) {
                moved.epoch = row.epoch;
            }
        }
        // Held at the positions from before, until the caller knows what was committed; the epochs are new.
        for row in &stored {
            if let Some(held) = self.held.get_mut(&row.split) {
                held.epoch = row.epoch;
            }
        }
        let outcome = if failpoint::is_blind() { Outcome::NotCommitted } else { judge(moves, &stored)? };
        self.writer.stats.resolved += u64::from(self.is_in_doubt);
        self.writer.recovered();
        info!(?outcome, "connected again; the last commit's outcome was read from the positions");
        Ok(outcome)
    }
}
