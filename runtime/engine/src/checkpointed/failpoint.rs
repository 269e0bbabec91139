//! The fail points of a job's start, and the switch that takes a protection away.

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

/// Leaves the inputs that have not left out of checkpoints when set to `return`, so that a test can show what they protect from.
#[cfg(feature = "failpoints")]
const WITHOUT_INPUTS: &str = "calls::without_inputs";

/// Tells whether checkpoints hold the inputs that have not left: always, outside of tests.
pub(super) fn holds_inputs() -> bool {
    #[cfg(feature = "failpoints")]
    return fail::eval(WITHOUT_INPUTS, |_| ()).is_none();
    #[cfg(not(feature = "failpoints"))]
    true
}
