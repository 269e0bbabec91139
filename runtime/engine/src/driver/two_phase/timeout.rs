//! How long a transaction may stay open, and what must fit into that time.

use std::time::Duration;

use thiserror::Error;

/// A transaction could time out while nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the target drops a transaction after {timeout:?}, but one may have to last {:?}: {interval:?} from one checkpoint to the \
     next, {checkpoint_timeout:?} until a checkpoint is given up, and {downtime:?} of stated downtime; give transactions more \
     time, or these less",
    needed(*.interval, *.checkpoint_timeout, *.downtime)
)]
pub struct TimeoutTooShort {
    /// How long the target keeps a transaction.
    pub timeout: Duration,
    /// From one checkpoint to the next.
    pub interval: Duration,
    /// How long after its trigger a checkpoint is given up.
    pub checkpoint_timeout: Duration,
    /// How long the job may be down.
    pub downtime: Duration,
}

impl TimeoutTooShort {
    /// Returns how long a transaction may be needed.
    pub fn needed(&self) -> Duration {
        needed(self.interval, self.checkpoint_timeout, self.downtime)
    }
}

fn needed(interval: Duration, checkpoint_timeout: Duration, downtime: Duration) -> Duration {
    interval.saturating_add(checkpoint_timeout).saturating_add(downtime)
}

/// Checks at the start that a transaction outlives what it may have to: it is begun right behind a barrier, waits for
/// the next, then for that checkpoint to become complete, and, if the process dies just then, for the restart.
///
/// # Errors
/// The timeout is shorter than the sum. No timeout is long enough for everything.
pub fn check_timeout(
    timeout: Option<Duration>,
    interval: Duration,
    checkpoint_timeout: Duration,
    downtime: Duration,
) -> Result<(), TimeoutTooShort> {
    match timeout {
        Some(timeout) if timeout < needed(interval, checkpoint_timeout, downtime) => {
            Err(TimeoutTooShort { timeout, interval, checkpoint_timeout, downtime })
        }
        _ => Ok(()),
    }
}

/// Tells whether so much of a timeout has passed.
pub(super) fn is_past(age: Duration, timeout: Duration, ratio: f64) -> bool {
    age.as_secs_f64() >= timeout.as_secs_f64() * ratio
}
