//! The command line tool: prepares the cache, and runs commands with servers around them.

mod arguments;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

use arguments::{Request, USAGE};
use levada_testcontainers::run::{Needs, run};
use levada_testcontainers::{Error, Kafka, Postgres};

/// Our own failures, told apart from those of the command: what `env` and `timeout` use.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    let outcome = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Request::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Request::Prepare(needs)) => prepare(needs).map(|()| ExitCode::SUCCESS),
        Ok(Request::Run(needs, command)) => run_command(needs, &command),
        Err(complaint) => {
            eprintln!("levada-testcontainers: {complaint}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("levada-testcontainers: {}", error.chain());
        ExitCode::from(OWN_FAILURE)
    })
}

fn prepare(needs: Needs) -> Result<(), Error> {
    if needs.kafka {
        Kafka::prepare()?;
    }
    if needs.postgres {
        Postgres::prepare()?;
    }
    Ok(())
}

fn run_command(needs: Needs, words: &[std::ffi::OsString]) -> Result<ExitCode, Error> {
    // The parser refuses an empty command.
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    run(needs, &mut command).map(exit_code)
}

/// Returns what a shell would: the exit code, or 128 and the signal's number.
fn exit_code(status: ExitStatus) -> ExitCode {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(number.and_then(|number| u8::try_from(number).ok()).unwrap_or(OWN_FAILURE))
}
