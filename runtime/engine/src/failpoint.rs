//! Passing a fail point: tests stop, fail or kill the process there; other builds hold neither the call nor the name.

/// Passes a fail point. What is configured for it may block, so it runs outside of the runtime's own threads.
#[cfg(feature = "failpoints")]
pub(crate) async fn reached(name: &'static str) {
    if fail::list().is_empty() {
        return;
    }
    let passed = tokio::task::spawn_blocking(move || reached_blocking(name));
    if let Err(error) = passed.await
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Passes a fail point on a thread that may block.
#[cfg(feature = "failpoints")]
pub(crate) fn reached_blocking(name: &'static str) {
    fail::eval(name, |_| ());
}

/// Passes a fail point; with `blocking` outside of async code.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reached($name).await;
    };
    (blocking $name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reached_blocking($name);
    };
}
pub(crate) use fail_point;
