//! `levada checkpoint`: what is in a store, without taking part in it.
//!
//! Only reads, takes no lease, and so works beside a running job. A checkpoint that the job discards meanwhile is no damage.
//!
//! ```text
//!   store ──▶ levada-engine's Listing ──▶ report: text in columns ──▶ standard output
//!                                    └──▶ json: one document      ──▶
//! ```

pub(crate) mod columns;
mod json;
mod list;
mod show;
pub(crate) mod units;
mod verify;

use std::io::{self, Write};

use levada_core::{CheckpointId, ErrorChain};
use levada_engine::store::{Damage, Store, StoreError};

use crate::exit::Exit;

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  every piece that was read is whole
  1  the store cannot be reached or read
  2  the command line is wrong: no such place, no such job or checkpoint in it
  8  something in the store is missing or corrupt; standard output names it

Reads only: takes no lease and works beside a running job.";

/// Looks into a checkpoint store.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists the entries of a store in their order.
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Shows one checkpoint: its operators with their state, positions and pending transactions.
    #[command(after_help = EXIT_CODES)]
    Show(Show),
    /// Reads every piece of every checkpoint that can be restored, and names what is damaged.
    #[command(after_help = EXIT_CODES)]
    Verify(Verify),
}

/// Where the store is, and how to print what is in it.
#[derive(Debug, clap::Args)]
struct Place {
    /// The store: a folder, file://, s3://, gs:// or az://. Credentials of clouds come from the environment.
    store: String,
    /// Prints one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: Place,
    /// Only entries of the attempts of this job.
    #[arg(long)]
    job: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    place: Place,
    /// The checkpoint, attempt and sequence: 3-17.
    #[arg(value_parser = parse_id)]
    id: CheckpointId,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    place: Place,
}

pub(crate) fn parse_id(text: &str) -> Result<CheckpointId, String> {
    let parsed = text.split_once('-').and_then(|(attempt, sequence)| {
        Some(CheckpointId::new(attempt.parse().ok()?, sequence.parse().ok()?))
    });
    parsed.ok_or_else(|| "a checkpoint is named by attempt and sequence, as in 3-17".to_owned())
}

/// What a command has to say, and whether it met damage.
struct Report {
    text: String,
    is_damaged: bool,
}

/// Why a command has nothing to say.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
    #[error("no attempt of job {job:?} is in the store{}", others(.there))]
    NoSuchJob { job: String, there: Vec<String> },
    #[error("checkpoint {0} is not in the store")]
    NoSuchCheckpoint(CheckpointId),
    #[error("the report cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
}

fn others(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!("; there are attempts of {}", there.join(", ")) }
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Failure::Store(StoreError::Location { .. })
            | Failure::NoSuchJob { .. }
            | Failure::NoSuchCheckpoint(_) => Exit::Config,
            Failure::Store(_) | Failure::Encode(_) => Exit::Failed,
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn run(command: Command) -> Exit {
    let reported = match command {
        Command::List(arguments) => list::list(&arguments).await,
        Command::Show(arguments) => show::show(&arguments).await,
        Command::Verify(arguments) => verify::verify(&arguments).await,
    };
    match reported {
        Ok(report) => print(&report),
        Err(failure) => {
            eprintln!("levada: {}", ErrorChain(&failure));
            failure.exit()
        }
    }
}

impl Place {
    fn open(&self) -> Result<Store, StoreError> {
        Store::open_to_read(&self.store)
    }
}

fn print(report: &Report) -> Exit {
    let exit = if report.is_damaged { Exit::Damaged } else { Exit::Done };
    match io::stdout().lock().write_all(report.text.as_bytes()) {
        Ok(()) => exit,
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(error) => {
            eprintln!("levada: the report cannot be written: {error}");
            Exit::Failed
        }
    }
}

/// Writes one line for each damage: where, and what is wrong.
pub(crate) fn damage_lines(damages: &[Damage]) -> String {
    damages.iter().map(|damage| format!("DAMAGED  {damage} {}\n", damage.flaw)).collect()
}

/// Counts things in words: `1 part`, `2 parts`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
