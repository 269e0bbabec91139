//! The fail points of the store, and the switches that take a protection away.

/// Every fail point of the store, in the order in which a checkpoint passes them: to pause, panic or kill at.
#[cfg(feature = "failpoints")]
pub const FAIL_POINTS: &[&str] = &[
    "store::lease::before",
    "store::lease::after",
    "store::piece::before",
    "store::part::before",
    "store::part::between_chunks",
    "store::part::before_complete",
    "store::part::after",
    "store::entry::before",
    "store::entry::after_link",
    "store::entry::before_read_back",
    "store::entry::after",
    "store::savepoint::before_manifest",
    "store::savepoint::after_manifest",
    "store::heartbeat::before",
    "store::retention::before_discarding",
    "store::retention::after_discarding",
    "store::retention::between_deletions",
    "store::retention::between_pieces",
    "store::retention::after",
];

/// Makes every conditional put an unconditional one when set to `return`, so that a test can show what the condition
/// protects from.
#[cfg(feature = "failpoints")]
pub(crate) const WITHOUT_CONDITION: &str = "store::without_condition";

/// Loses the answer to the next put of an entry when set to `return`: the entry is there, the writer gets an error.
#[cfg(feature = "failpoints")]
pub(crate) const LOST_ANSWER: &str = "store::lost_answer";

/// Tells whether objects are to be created whether they exist or not.
pub(crate) fn is_without_condition() -> bool {
    #[cfg(feature = "failpoints")]
    return fail::eval(WITHOUT_CONDITION, |_| ()).is_some();
    #[cfg(not(feature = "failpoints"))]
    false
}

/// Tells whether the answer to a put is to be lost.
pub(crate) fn is_answer_lost() -> bool {
    #[cfg(feature = "failpoints")]
    return fail::eval(LOST_ANSWER, |_| ()).is_some();
    #[cfg(not(feature = "failpoints"))]
    false
}
