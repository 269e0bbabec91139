//! `levada transactions`: the Kafka transactions of jobs with checkpoints, looked at and ended by hand.
//!
//! For when a start stops because it cannot decide, or a job is given up. A start that can decide needs no help.
//!
//! ```text
//!   store ──▶ stored: handles of the newest checkpoints ──┐
//!                                                          ├─▶ survey: what became of each, what a start would do ─▶ list
//!   brokers ─▶ cluster: ids with the prefix, described ───┘       │
//!                                                                  └─▶ refuse? ─▶ lease ─▶ the same again ─▶ commit, abort
//! ```
//!
//! `list` only reads. `commit` and `abort` take the store's lease, so that no job begins meanwhile, and end transactions by the
//! same code as the sink.

mod cluster;
mod end;
mod json;
mod list;
mod refuse;
mod stored;
mod survey;

use std::io::{self, Write};
use std::path::PathBuf;

use levada_core::{CheckpointId, ErrorChain};
use levada_engine::store::StoreError;
use levada_kafka::sink::recovery::NameError;
use levada_kafka::sink::two_phase::ResolveError;

use crate::checkpoint::parse_id;
use crate::exit::Exit;

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or it was done before
  1  the store or the brokers cannot be reached, or the end of a transaction failed; the same command again
  2  the command line or the properties file is wrong, nothing of that name is there, or --yes is missing: nothing was changed
  3  refused: it would lose or double records, or a broker does not let us; standard error tells why
  5  a job that runs holds the store: nothing was changed
  8  something in the store is missing or corrupt; standard output names it";

/// Looks at Kafka transactions of jobs with checkpoints, and ends them by hand.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Lists the transactions that the newest checkpoints and the brokers know, and what the next start would do with each.
    #[command(after_help = EXIT_CODES)]
    List(List),
    /// Commits transactions that a checkpoint names: their records become visible.
    #[command(after_help = EXIT_CODES)]
    Commit(End),
    /// Aborts transactions: their records are never visible.
    #[command(after_help = EXIT_CODES)]
    Abort(End),
}

/// Where the handles are, and the brokers.
#[derive(Debug, clap::Args)]
struct Place {
    /// The checkpoint store: a folder, file://, s3://, gs:// or az://. Credentials of clouds come from the environment.
    store: String,
    /// What the transactional ids of the job begin with, as its sinks are told.
    #[arg(long)]
    prefix: String,
    /// Brokers, as HOST:PORT, several with commas between.
    #[arg(long)]
    bootstrap: Option<String>,
    /// A file of properties for the connection, one `name=value` a line, by librdkafka's names; ${NAME} and ${file:PATH} are put in.
    #[arg(long)]
    properties: Option<PathBuf>,
    /// Prints one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[command(flatten)]
    place: Place,
    /// Also those that are decided and that no checkpoint names.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct End {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    which: Which,
    /// Also where it tears a checkpoint apart, or ends what a start would commit.
    #[arg(long)]
    force: bool,
    /// Does it; without it, tells what would be done.
    #[arg(long)]
    yes: bool,
}

/// Which transactions.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The one with this transactional id.
    #[arg(long)]
    id: Option<String>,
    /// All that this checkpoint names, attempt and sequence: 3-17.
    #[arg(long, value_parser = parse_id)]
    checkpoint: Option<CheckpointId>,
}

/// What a command has to say, and how it ends.
struct Report {
    text: String,
    exit: Exit,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    #[error("cannot read the properties in {file}")]
    File {
        file: String,
        #[source]
        cause: io::Error,
    },
    #[error("{file}, line {line}: {reason}")]
    Property { file: String, line: usize, reason: String },
    #[error("the brokers cannot be reached by these properties")]
    Connection(#[from] levada_kafka::protocol::ConfigError),
    #[error("no transactional ids begin with this prefix")]
    Prefix(#[from] NameError),
    #[error("cannot {doing}")]
    Brokers {
        doing: &'static str,
        #[source]
        cause: Box<levada_kafka::protocol::ProtocolError>,
    },
    #[error("transactions cannot be resolved")]
    Resolve(#[from] ResolveError),
    #[error("neither a checkpoint nor the brokers know {0}")]
    NoSuchTransaction(String),
    #[error("checkpoint {0} is not among the newest in the store, or names no transaction of Kafka")]
    NoSuchCheckpoint(CheckpointId),
    #[error("refused, and nothing was changed: {}", .0.join("; "))]
    Refused(Vec<String>),
    #[error(
        "job {owner:?} runs and holds the store ({by}): it ends its transactions by itself; stop it first"
    )]
    Running { owner: String, by: String },
    #[error("no job has begun in this store")]
    Empty,
    #[error("the report cannot be written as JSON")]
    Encode(#[from] serde_json::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Failure::Store(StoreError::Location { .. })
            | Failure::File { .. }
            | Failure::Property { .. }
            | Failure::Connection(_)
            | Failure::Prefix(_)
            | Failure::NoSuchTransaction(_)
            | Failure::NoSuchCheckpoint(_)
            | Failure::Empty => Exit::Config,
            Failure::Store(StoreError::Damaged(_)) => Exit::Damaged,
            Failure::Store(StoreError::Held { .. } | StoreError::TakenOver { .. })
            | Failure::Running { .. } => Exit::Fenced,
            Failure::Refused(_) => Exit::Refused,
            Failure::Resolve(error) if !error.is_retriable() => Exit::Refused,
            Failure::Store(_) | Failure::Brokers { .. } | Failure::Resolve(_) | Failure::Encode(_) => {
                Exit::Failed
            }
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn run(command: Command) -> Exit {
    let reported = match command {
        Command::List(arguments) => list::list(&arguments).await,
        Command::Commit(arguments) => end::end(&arguments, end::Ending::Commit).await,
        Command::Abort(arguments) => end::end(&arguments, end::Ending::Abort).await,
    };
    match reported {
        Ok(report) => print(&report),
        Err(failure) => {
            eprintln!("levada: {}", ErrorChain(&failure));
            failure.exit()
        }
    }
}

fn print(report: &Report) -> Exit {
    match io::stdout().lock().write_all(report.text.as_bytes()) {
        Ok(()) => report.exit,
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => report.exit,
        Err(error) => {
            eprintln!("levada: the report cannot be written: {error}");
            Exit::Failed
        }
    }
}
