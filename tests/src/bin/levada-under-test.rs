//! The `levada` command as tests run it: the same entry point, which dies or stops at a fail point when told to.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _obedience = levada_testcontainers::crash::obey().expect("a place in the environment");
    levada::cli::main().into()
}
