//! The end of a task's source or sink.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

/// How long a source or sink may take to release what it holds. Its task has nothing left to do, but how it ended is
/// not told before: a stuck goodbye must not hide an error, nor outlive the deadline of a stop by much.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Waits for `closing`, but not for ever.
pub(crate) async fn close_in_time(what: &'static str, closing: impl Future<Output = ()>) {
    if timeout(CLOSE_WITHIN, closing).await.is_err() {
        tracing::warn!(what, within = ?CLOSE_WITHIN, "not closed in time; left to its own drop");
    }
}
