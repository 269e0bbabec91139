//! How long a transaction may stay open, and what must fit into that time.

use std::time::Duration;

use thiserror::Error;

/// A transaction could time out while nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the target drops a transaction after {timeout:?}, but one may have to last {needed:?}: the checkpoint interval, the checkpoint timeout and the stated downtime together"
)]
pub struct TimeoutTooShort {
    /// How long the target keeps a transaction.
    pub timeout: Duration,
    /// How long one may be needed.
    pub needed: Duration,
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
    let needed = interval.saturating_add(checkpoint_timeout).saturating_add(downtime);
    match timeout {
        Some(timeout) if timeout < needed => Err(TimeoutTooShort { timeout, needed }),
        _ => Ok(()),
    }
}

/// Tells whether so much of a timeout has passed.
pub(super) fn is_past(age: Duration, timeout: Duration, ratio: f64) -> bool {
    age.as_secs_f64() >= timeout.as_secs_f64() * ratio
}
