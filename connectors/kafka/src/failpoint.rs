//! Points at which tests stop, fail or kill the process; other builds hold neither the calls nor the names.

/// Every fail point of the transactional sink, in the order in which a transaction passes them, then those of an abort, and
/// those of a start.
#[cfg(all(feature = "failpoints", feature = "sink"))]
pub const FAIL_POINTS: &[&str] = &[
    "kafka::slot::before_init",
    "kafka::slot::after_init",
    "kafka::slot::warm",
    "kafka::begin::opened",
    "kafka::write::before_first",
    "kafka::write::after_first",
    "kafka::write::after_batch",
    "kafka::freeze::before_flush",
    "kafka::freeze::before_marker",
    "kafka::freeze::after_marker",
    "kafka::freeze::frozen",
    "kafka::pre_commit::before_describe",
    "kafka::pre_commit::described",
    "kafka::commit::before_end",
    "kafka::end::sent",
    "kafka::commit::after_end",
    "kafka::commit::before_free",
    "kafka::abort::before",
    "kafka::abort::after",
    "kafka::roll_back::before_end",
    "kafka::roll_back::after_end",
    "kafka::inspect::before",
    "kafka::inspect::after",
    "kafka::fence::before_list",
    "kafka::fence::listed",
    "kafka::fence::sent",
    "kafka::fence::after",
];

/// Passes a fail point. What is configured for it may block, so it runs outside of the runtime's own threads.
#[cfg(feature = "failpoints")]
pub(crate) async fn reached(name: &'static str) {
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

/// Passes a fail point, or passes it under a condition.
#[cfg(feature = "sink")]
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::reached($name).await;
    };
    (if $condition:expr, $name:literal) => {
        #[cfg(feature = "failpoints")]
        if $condition {
            $crate::failpoint::reached($name).await;
        }
    };
}
#[cfg(feature = "sink")]
pub(crate) use fail_point;
