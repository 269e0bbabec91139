//! The fail points of a job's start.

/// Every fail point of the recovery of sinks, in the order in which a start passes them.
#[cfg(feature = "failpoints")]
pub const RECOVERY_FAIL_POINTS: &[&str] = &[
    "recovery::before_inspect",
    "recovery::after_inspect",
    "recovery::before_note",
    "recovery::after_note",
    "recovery::before_roll_back",
    "recovery::after_roll_back",
    "recovery::before_fence",
    "recovery::after_fence",
    "recovery::before_resolved",
];
