//! Points at which tests stop, fail or kill the process; nothing in other builds.

/// Every fail point of the sink, in the order in which a claim and a commit pass them.
#[cfg(feature = "failpoints")]
pub const FAIL_POINTS: &[&str] = &[
    "pg::claim::before",
    "pg::claim::after",
    "pg::commit::before_begin",
    "pg::commit::after_positions",
    "pg::commit::after_data",
    "pg::commit::before_commit",
    "pg::commit::after_commit",
    "pg::reconnect",
];

/// Switches the comparison of positions off when set to `return`, so that a test can show what it protects from.
#[cfg(feature = "failpoints")]
pub(crate) const WITHOUT_COMPARE_AND_SET: &str = "pg::commit::without_compare_and_set";

/// Makes the sink take every lost commit for one that did not happen, when set to `return`: what a blind retry does.
#[cfg(feature = "failpoints")]
pub(crate) const BLIND_RETRY: &str = "pg::commit::blind_retry";

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

/// The fail points of one kind of commit, by step; empty in other builds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Points {
    #[cfg(feature = "failpoints")]
    pub(crate) before_begin: &'static str,
    #[cfg(feature = "failpoints")]
    pub(crate) after_leads: &'static str,
    #[cfg(feature = "failpoints")]
    pub(crate) after_data: &'static str,
    #[cfg(feature = "failpoints")]
    pub(crate) before_commit: &'static str,
    #[cfg(feature = "failpoints")]
    pub(crate) after_commit: &'static str,
}

/// Names the points of a kind of commit; other builds do not hold the names.
macro_rules! points {
    ($($step:ident: $name:literal),* $(,)?) => {
        $crate::sink::failpoint::Points {
            $(#[cfg(feature = "failpoints")] $step: $name,)*
        }
    };
}
#[cfg_attr(
    not(any(feature = "write-ahead", feature = "idempotent")),
    allow(unused_imports, reason = "of other sinks")
)]
pub(crate) use points;

impl Points {
    /// Those of a commit with positions.
    pub(crate) const POSITIONS: Self = points! {
        before_begin: "pg::commit::before_begin",
        after_leads: "pg::commit::after_positions",
        after_data: "pg::commit::after_data",
        before_commit: "pg::commit::before_commit",
        after_commit: "pg::commit::after_commit",
    };
}

/// Passes a fail point; other builds hold neither the call nor the name.
macro_rules! fail_point {
    ($points:ident.$step:ident) => {
        #[cfg(feature = "failpoints")]
        $crate::sink::failpoint::reached($points.$step).await;
        #[cfg(not(feature = "failpoints"))]
        let _ = $points;
    };
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::sink::failpoint::reached($name).await;
    };
}
pub(crate) use fail_point;

/// Tells whether a commit waits for each step before it takes the next, so that a fail point between two steps is
/// between them on the server, too.
pub(crate) fn is_stepwise() -> bool {
    #[cfg(feature = "failpoints")]
    return !fail::list().is_empty();
    #[cfg(not(feature = "failpoints"))]
    false
}

/// Tells whether the stored positions are to be passed over after a lost commit.
pub(crate) fn is_blind() -> bool {
    #[cfg(feature = "failpoints")]
    return fail::eval(BLIND_RETRY, |_| ()).is_some();
    #[cfg(not(feature = "failpoints"))]
    false
}

/// Returns the statement that moves positions.
pub(crate) fn move_positions() -> &'static str {
    #[cfg(feature = "failpoints")]
    if fail::eval(WITHOUT_COMPARE_AND_SET, |_| ()).is_some() {
        return super::sql::MOVE_POSITIONS_BLINDLY;
    }
    super::sql::MOVE_POSITIONS
}
