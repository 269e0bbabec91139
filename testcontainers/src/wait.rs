//! Waiting for a condition with a limit: the one place of this crate where time passes on purpose.
//!
//! Other processes do not notify us, so their state is looked at again and again. Where an event exists (end of file on
//! a pipe, the exit of a child that nobody else waits for), block on the event instead.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// The pause between two looks: short beside the start of any server, long beside the cost of a look.
const STEP: Duration = Duration::from_millis(10);

/// Waits until `condition` holds, looking every 10 ms, first at once.
///
/// # Errors
///
/// [`Error::TimedOut`], naming `what`, when it does not hold within `patience`.
///
/// ```
/// use std::time::Duration;
/// levada_testcontainers::wait_until(Duration::from_secs(1), "the obvious", || true)?;
/// # Ok::<(), levada_testcontainers::Error>(())
/// ```
pub fn wait_until(patience: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Error> {
    match wait_for(patience, || condition().then_some(())) {
        Some(()) => Ok(()),
        None => Err(Error::TimedOut { what: what.to_owned(), after: patience }),
    }
}

/// Looks every 10 ms until `look` finds something, and returns it; `None` when `patience` is over.
pub(crate) fn wait_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if started.elapsed() >= patience {
            return None;
        }
        pause();
    }
}

/// Lets one step pass. Nobody signals this condition variable: its timeout is the point.
fn pause() {
    let lock = Mutex::new(());
    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    drop(Condvar::new().wait_timeout_while(guard, STEP, |()| true));
}
