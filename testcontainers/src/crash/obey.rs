//! The child's side: a process that kills or stops itself where it was told to.

use std::sync::atomic::{AtomicU32, Ordering};

use fail::FailScenario;
use nix::sys::signal::{Signal, raise};

use super::place::{self, KILL_AT, STOP_AT};
use crate::{Error, variable};

/// Keeps the fail points as the environment has set them; they are cleared when it is dropped.
#[derive(Debug)]
#[must_use = "fail points are cleared when it is dropped"]
pub struct Obedience {
    _scenario: FailScenario<'static>,
}

/// Sets fail points up as the environment says; the first thing that a child of a [`CrashLoop`](super::CrashLoop) does.
///
/// - `LEVADA_KILL_AT=NAME:COUNT` kills the process (SIGKILL) when fail point NAME is passed for the COUNT-th time. The
///   crash loop sets it.
/// - `LEVADA_STOP_AT=NAME:COUNT` stops it there (SIGSTOP), until somebody continues it.
/// - `FAILPOINTS` configures fail points in the words of the crate `fail`.
///
/// Without any of them, nothing is configured. A name that is no fail point of the program has no effect.
///
/// # Errors
///
/// [`Error::Variable`] if a value is not `NAME:COUNT` with a count of at least 1.
///
/// # Panics
///
/// Where `fail` does: `FAILPOINTS` cannot be read.
pub fn obey() -> Result<Obedience, Error> {
    let obedience = Obedience { _scenario: FailScenario::setup() };
    signal_at(KILL_AT, Signal::SIGKILL)?;
    signal_at(STOP_AT, Signal::SIGSTOP)?;
    Ok(obedience)
}

fn signal_at(variable: &'static str, signal: Signal) -> Result<(), Error> {
    let Some(value) = variable::text(variable)? else { return Ok(()) };
    let Some((point, passing)) = place::parse(&value) else {
        return Err(Error::Variable { variable, reason: "it is not NAME:COUNT" });
    };
    let last_words = place::last_words(&value);
    let passed = AtomicU32::new(0);
    let send = move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == passing {
            eprintln!("{last_words}");
            send_to_this_thread(signal);
        }
    };
    fail::cfg_callback(point, send)
        .map_err(|_| Error::Variable { variable, reason: "the fail point cannot be configured" })
}

/// Sends a signal to this very thread: it is the one that must not go on, and it does not return from this call before
/// the signal has its effect. A signal to the process may be taken by another thread a moment later.
fn send_to_this_thread(signal: Signal) {
    if raise(signal).is_err() {
        // A thread may signal itself; if it may not after all, it must not pass unnoticed.
        std::process::abort();
    }
}
