//! The fail points of a send and of the markers.

use crate::sink::failpoint::{Points, points};

/// Every fail point, in the order in which an opening, a send and a notification pass them.
#[cfg(feature = "failpoints")]
pub const FAIL_POINTS: &[&str] = &[
    "pgwal::fence::before",
    "pgwal::fence::after",
    "pgwal::is_committed",
    "pgwal::send::before_begin",
    "pgwal::send::after_marker",
    "pgwal::send::after_data",
    "pgwal::send::before_commit",
    "pgwal::send::after_commit",
    "pgwal::forget",
];

/// Those of a transaction with a marker.
pub(super) const SEND: Points = points! {
    before_begin: "pgwal::send::before_begin",
    after_leads: "pgwal::send::after_marker",
    after_data: "pgwal::send::after_data",
    before_commit: "pgwal::send::before_commit",
    after_commit: "pgwal::send::after_commit",
};

/// Leaves the marker out when set to `return`, so that a test can show what it protects from.
#[cfg(feature = "failpoints")]
const WITHOUT_MARKER: &str = "pgwal::without_marker";

/// Leaves the comparison with the fence out when set to `return`.
#[cfg(feature = "failpoints")]
const WITHOUT_FENCE: &str = "pgwal::without_fence";

/// Tells whether markers are written: always, outside of tests.
pub(super) fn has_marker() -> bool {
    #[cfg(feature = "failpoints")]
    return fail::eval(WITHOUT_MARKER, |_| ()).is_none();
    #[cfg(not(feature = "failpoints"))]
    true
}

/// Tells whether the fence is looked at: always, outside of tests.
pub(super) fn has_fence() -> bool {
    #[cfg(feature = "failpoints")]
    return fail::eval(WITHOUT_FENCE, |_| ()).is_none();
    #[cfg(not(feature = "failpoints"))]
    true
}
