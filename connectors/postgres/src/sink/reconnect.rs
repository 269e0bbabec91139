//! After the connection was lost: come back, take what is ours again, and find out what became of the last commit.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_core::{Assignment, ErrorClass, SinkError};
use tracing::{info, warn};

use super::backoff::Pauses;
use super::claim::Stored;
use super::commit::Move;
use super::error::{Failure, fatal};
use super::failpoint::{self, fail_point};
use super::session::Session;
use super::stats::Health;
use super::{Job, PostgresSink};

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
    /// Notes that the connection is of no use any more. The first time in a row is logged.
    pub(super) fn lost(&mut self, failure: &Failure) {
        self.session = None;
        let is_first = !matches!(&*self.health.borrow(), Health::Degraded { .. });
        if is_first {
            warn!(error = %failure.cause, table = %self.config.table, "degraded: the server is away, trying again until it is back");
        }
        self.health.send_replace(Health::Degraded { reason: failure.cause.to_string() });
    }

    /// Makes sure that there is a connection, however long that takes; tells whether it is a new one.
    ///
    /// # Errors
    /// Only for what waiting does not change: privileges, a database that does not exist.
    pub(super) async fn connected(&mut self, job: &Job) -> Result<bool, SinkError> {
        if self.session.as_ref().is_some_and(|session| !session.client.is_closed()) {
            return Ok(false);
        }
        self.session = None;
        let mut pauses = Pauses::new(Duration::from_millis(50), self.config.reconnect_pause);
        loop {
            fail_point!("pg::reconnect");
            match Session::connect(&self.config, &job.application_name).await {
                Ok(session) => {
                    self.session = Some(session);
                    self.stats.reconnects += 1;
                    return Ok(true);
                }
                Err(failure) if matches!(failure.class, ErrorClass::Reconnect | ErrorClass::Retry) => {
                    self.lost(&failure);
                    // At once is tried once only; a server that takes connections and drops them is not hammered.
                    pauses.next().await;
                }
                Err(failure) => return Err(failure.during("connecting again")),
            }
        }
    }

    /// Comes back after a lost connection: claims everything again, at our own epochs only, and reads what became of
    /// the commit that moves `moves`.
    ///
    /// The claim waits for the old backend's locks, so that backend's transaction is over, one way or the other.
    pub(super) async fn reconnected(&mut self, job: &Job, moves: &mut [Move]) -> Result<Outcome, SinkError> {
        let stored = self.claim_splits(job, &Assignment::default()).await?;
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
        self.stats.resolved += u64::from(self.is_in_doubt);
        self.recovered();
        info!(?outcome, "connected again; the last commit's outcome was read from the positions");
        Ok(outcome)
    }

    /// Notes that the server is back.
    pub(super) fn recovered(&mut self) {
        if matches!(&*self.health.borrow(), Health::Degraded { .. }) {
            info!(table = %self.config.table, "recovered");
        }
        self.health.send_replace(Health::Connected);
    }
}
