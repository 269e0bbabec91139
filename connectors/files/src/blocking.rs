//! File I/O, on tokio's blocking threads: a disk may be slow for seconds, and a thread of the runtime serves others.

use std::io;

use tokio::task::{JoinError, JoinHandle};

/// Starts `work` on a blocking thread. It runs to its end, also when nobody waits for it any more.
///
/// # Panics
/// Panics outside a tokio runtime.
pub(crate) fn started<V: Send + 'static>(work: impl FnOnce() -> V + Send + 'static) -> JoinHandle<V> {
    tokio::task::spawn_blocking(work)
}

/// Returns what the work came to; a panic goes on in the caller.
pub(crate) fn ended<V>(outcome: Result<V, JoinError>) -> io::Result<V> {
    outcome.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // Work that has begun cannot be cancelled: the runtime shut down before it did.
        Err(_) => io::Error::other("the runtime shuts down"),
    })
}
