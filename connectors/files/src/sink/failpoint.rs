//! Points at which tests stop, fail or kill the process; nothing in other builds.

use std::io;

/// Every fail point of the sink, in the order in which a transaction passes them, and then the others.
///
/// Set to `return`, a point is an I/O error.
#[cfg(feature = "failpoints")]
pub const FAIL_POINTS: &[&str] = &[
    "files::begin",
    "files::after_begin",
    "files::write",
    "files::before_sync",
    "files::after_sync",
    "files::after_pending_sync",
    "files::before_rename",
    "files::after_rename",
    "files::before_folder_sync",
    "files::before_unlink",
    "files::after_unlink",
    "files::abort",
    "files::fence",
];

/// Passes a fail point. What is configured for it may block: only called on blocking threads.
#[cfg(feature = "failpoints")]
pub(crate) fn reached(name: &'static str) -> io::Result<()> {
    match fail::eval(name, |_| ()) {
        Some(()) => Err(io::Error::other(format!("fail point {name}"))),
        None => Ok(()),
    }
}

/// Passes a fail point.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn reached(_name: &'static str) -> io::Result<()> {
    Ok(())
}
