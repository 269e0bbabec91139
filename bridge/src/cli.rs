//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use levada_core::ErrorChain;

use crate::config::ConfigErrors;
use crate::exit::Exit;
use crate::{checkpoint, config, logs, run, transactions};

const EXIT_CODES: &str = "\
Exit codes:
  0  done: the bounded read is complete, or the job stopped when it was told to
  1  the job gave up; the last line of the log tells why
  2  the command line or the pipeline file is wrong; nothing was started
  3  a topic, table, key, privilege or password is not as the pipeline needs it; what is committed is whole
  4  a record cannot be written; the log names it
  5  another process has taken the pipeline over
  6  the balance does not close: a bug
  7  a second signal, or the deadline of a stop, ended the job before its last commit
  8  (levada checkpoint) something in the store is missing or corrupt

SIGTERM or Ctrl-C stops with a last commit; a second one ends at once. Neither loses or doubles a record.";

/// Moves Kafka topics into Postgres tables, exactly once.
#[derive(Debug, Parser)]
#[command(name = "levada", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a pipeline file.
    #[command(after_help = EXIT_CODES)]
    Run(Run),
    /// Looks into a checkpoint store.
    #[command(subcommand, after_help = checkpoint::EXIT_CODES)]
    Checkpoint(checkpoint::Command),
    /// Looks at Kafka transactions of jobs with checkpoints, and ends them by hand.
    #[command(subcommand, after_help = transactions::EXIT_CODES)]
    Transactions(transactions::Command),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The pipeline file, YAML.
    file: PathBuf,
    /// Ends when every record is moved that is readable at the start; without it, the pipeline runs until stopped.
    #[arg(long, value_enum)]
    until: Option<Until>,
    /// How log lines are written to standard error.
    #[arg(long, value_enum, default_value = "human")]
    log_format: LogFormat,
}

/// Where a bounded run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// At the end that each partition has at the start.
    Now,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Runs the command line of this process.
pub fn main() -> Exit {
    match Cli::parse().command {
        Command::Run(arguments) => run_pipeline(&arguments),
        Command::Checkpoint(command) => on_runtime(checkpoint::run(command)),
        Command::Transactions(command) => on_runtime(transactions::run(command)),
    }
}

fn run_pipeline(arguments: &Run) -> Exit {
    let pipeline = match config::load(&arguments.file) {
        Ok(pipeline) => pipeline,
        Err(errors) => {
            tell(&errors, arguments.log_format);
            return Exit::Config;
        }
    };
    let bar = logs::start(arguments.log_format, arguments.until.is_some());
    on_runtime(run::run(&pipeline, arguments.until, arguments.log_format, &bar))
}

fn on_runtime(work: impl Future<Output = Exit>) -> Exit {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "cannot start the runtime");
            return Exit::Failed;
        }
    };
    let exit = runtime.block_on(work);
    // Dropping the runtime would wait without a limit for a client that does not come to its end.
    runtime.shutdown_background();
    exit
}

/// Tells everything that is wrong in the pipeline file.
fn tell(errors: &ConfigErrors, format: LogFormat) {
    match format {
        LogFormat::Human => eprintln!("{errors}"),
        LogFormat::Json => {
            logs::start(format, false);
            for error in &errors.errors {
                let file = errors.file.display();
                tracing::error!(%file, line = error.line, field = error.field, "{}", error.message);
            }
        }
    }
}
