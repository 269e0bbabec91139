//! Users' code that runs in the shell's own task: a panic of it is a failure of the attempt, not the shell's end.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

use crate::error::JobError;

/// Calls what makes sources and sinks. Whatever the panic has left half done is dropped with the attempt.
pub(super) fn caught<V>(call: impl FnOnce() -> V) -> Result<V, JobError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| JobError::Panicked { subtask: 0 })
}

/// Waits for what sinks do once a start. The lease is as whole afterwards as when the future is dropped.
pub(super) async fn caught_in<V>(future: impl Future<Output = Result<V, JobError>>) -> Result<V, JobError> {
    AssertUnwindSafe(future).catch_unwind().await.unwrap_or(Err(JobError::Panicked { subtask: 0 }))
}
