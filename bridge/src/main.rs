//! The `levada` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    levada::cli::main().into()
}
