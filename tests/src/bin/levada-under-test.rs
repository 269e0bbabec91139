//! The `levada` command as tests run it: the same entry point, which dies or stops at a fail point when told to.
//!
//! `LEVADA_TEST_KILL_AT=NAME:COUNT` kills the process with SIGKILL when fail point NAME is passed for the COUNT-th time;
//! `LEVADA_TEST_STOP_AT` stops it with SIGSTOP. `FAILPOINTS` configures fail points as usual.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

use fail::FailScenario;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
            kill(Pid::this(), signal).expect("a process may signal itself");
        }
    };
    fail::cfg_callback(name, send).expect("fail points are built in");
}
