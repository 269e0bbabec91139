//! The `levada` command as tests run it: the same entry point, which dies or stops at a fail point when told to.
//!
//! `LEVADA_TEST_KILL_AT=NAME:COUNT` kills the process with SIGKILL when fail point NAME is passed for the COUNT-th time;
//! `LEVADA_TEST_STOP_AT` stops it with SIGSTOP. `FAILPOINTS` configures fail points as usual.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use fail::FailScenario;
use nix::sys::signal::{Signal, raise};

fn main() -> ExitCode {
    let _scenario = FailScenario::setup();
    signal_at("LEVADA_TEST_KILL_AT", Signal::SIGKILL);
    signal_at("LEVADA_TEST_STOP_AT", Signal::SIGSTOP);
    levada::cli::main().into()
}

fn signal_at(variable: &str, signal: Signal) {
    let Ok(place) = env::var(variable) else { return };
    let (name, count) = place.rsplit_once(':').expect("NAME:COUNT");
    let count: u32 = count.parse().expect("a count");
    let passed = AtomicU32::new(0);
    let send = move || {
        if passed.fetch_add(1, Ordering::SeqCst) + 1 == count {
            // To this very thread: it is the one that must not go on, and it does not return from this call before the
            // signal has its effect. A signal to the process may be taken by another thread a moment later.
            raise(signal).expect("a thread may signal itself");
        }
    };
    fail::cfg_callback(name, send).expect("fail points are built in");
}
