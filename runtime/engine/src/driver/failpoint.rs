//! The fail points of the drivers.

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
    "marker_file::before_write",
    "marker_file::before_rename",
    "marker_file::after_rename",
];
