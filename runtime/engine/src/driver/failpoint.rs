//! Points at which tests stop, fail or kill the process; nothing in other builds.

/// Every fail point of the drivers, in the order in which records pass them.
#[cfg(feature = "failpoints")]
pub const FAIL_POINTS: &[&str] = &[
    "idempotent::before_flush",
    "idempotent::after_flush",
    "tpc::before_begin",
    "tpc::after_begin",
    "tpc::before_pre_commit",
    "tpc::after_pre_commit",
    "tpc::before_commit",
    "tpc::after_commit",
    "tpc::before_abort",
    "tpc::after_abort",
    "wal::before_send",
    "wal::after_send",
    "wal::before_marker",
    "wal::after_marker",
    "marker_file::before_rename",
    "marker_file::after_rename",
];

/// Passes a fail point. What is configured for it may block, so it runs outside of the runtime's own threads.
#[cfg(feature = "failpoints")]
pub(super) async fn reached(name: &'static str) {
    if fail::list().is_empty() {
        return;
    }
    let passed = tokio::task::spawn_blocking(move || {
        fail::eval(name, |_| ());
    });
    if let Err(error) = passed.await
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Passes a fail point on a thread that may block.
#[cfg(feature = "failpoints")]
pub(super) fn reached_blocking(name: &'static str) {
    fail::eval(name, |_| ());
}

/// Passes a fail point; other builds hold neither the call nor the name.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::driver::failpoint::reached($name).await;
    };
    (blocking $name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::driver::failpoint::reached_blocking($name);
    };
}
pub(super) use fail_point;
