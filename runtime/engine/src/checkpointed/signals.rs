//! Ending a job well when the process is told to.
//!
//! ```text
//!  SIGTERM, SIGINT ─▶ stop: a last checkpoint, its side effects committed ─▶ Done
//!                       │ deadline                      └─ a second signal ─▶ Interrupted, now
//!                       └───────────▶ Interrupted
//! ```

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::handle::{CheckpointedHandle, CheckpointedReport};
use super::run::CheckpointedJob;
use crate::checkpoint::Command;
use crate::error::JobError;
use crate::store::Store;

/// How long the last checkpoint and its side effects may take by default: below the 30 s after which Kubernetes kills.
pub const STOP_DEADLINE: Duration = Duration::from_secs(25);

/// How a process that runs a job ends. The numbers are the exit codes; they are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum JobExit {
    /// The job has come to its end, or was stopped; everything it took is committed.
    Done = 0,
    /// The job gave up. A new start goes on from the last complete checkpoint.
    Failed = 1,
    /// The job must not go on before a human has decided something; the error says what.
    Refused = 3,
    /// A record was refused; the error names it.
    BadRecord = 4,
    /// Another process holds, or has taken, the job.
    Fenced = 5,
    /// Records were lost or doubled inside the job: a bug.
    Unbalanced = 6,
    /// The deadline of a stop, or a second signal, ended the job: what no checkpoint covers is read again.
    Interrupted = 7,
}

impl JobExit {
    /// Tells how a process ends whose job came to this.
    pub fn of(outcome: &Result<CheckpointedReport, JobError>) -> Self {
        let Err(error) = outcome else { return JobExit::Done };
        match error {
            JobError::StopDeadline(_) | JobError::Cancelled => JobExit::Interrupted,
            JobError::Unbalanced(_) => JobExit::Unbalanced,
            JobError::StopRolledBack { .. } => JobExit::Failed,
            JobError::Store(cause) if cause.is_taken_over() || cause.is_held() => JobExit::Fenced,
            error if error.is_fenced() => JobExit::Fenced,
            error if error.is_bad_record() => JobExit::BadRecord,
            error if error.is_final() => JobExit::Refused,
            _ => JobExit::Failed,
        }
    }
}

impl From<JobExit> for ExitCode {
    fn from(exit: JobExit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// SIGTERM and SIGINT of this process.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Waits for a job's end, and ends it on SIGTERM or SIGINT: the first takes a last checkpoint and commits its side effects
/// within `deadline` ([`STOP_DEADLINE`]), a second one ends it now. [`JobExit::of`] tells the exit code.
///
/// A job that waits for a restart when it is told to stop ends with the error that it failed with.
///
/// # Errors
/// Why the job gave up; [`JobError::StopDeadline`] when the last checkpoint did not come in time, and
/// [`JobError::Cancelled`] after a second signal. In both cases tasks may still be closing.
pub async fn run_until_signal(
    job: CheckpointedHandle,
    deadline: Duration,
) -> Result<CheckpointedReport, JobError> {
    wait_until_signal(job, Signals::catch(), deadline).await
}

impl CheckpointedJob {
    /// Starts the job and waits as [`run_until_signal`] does. Signals are caught before the job starts, so that there is no
    /// moment at which one ends the process in the midst of a record.
    ///
    /// # Errors
    /// Those of [`CheckpointedJob::start`] and [`run_until_signal`].
    pub async fn run_until_signal(
        self,
        store: Store,
        deadline: Duration,
    ) -> Result<CheckpointedReport, JobError> {
        let signals = Signals::catch();
        wait_until_signal(self.start(store)?, signals, deadline).await
    }
}

async fn wait_until_signal(
    mut job: CheckpointedHandle,
    signals: io::Result<Signals>,
    deadline: Duration,
) -> Result<CheckpointedReport, JobError> {
    let mut signals = match signals {
        Ok(signals) => signals,
        Err(error) => {
            tracing::warn!(%error, "signals cannot be caught: one will end the process without a last checkpoint");
            return job.wait().await;
        }
    };
    tokio::select! {
        outcome = job.wait() => return outcome,
        () = signals.next() => {}
    }
    tracing::info!(?deadline, "told to stop: a last checkpoint is taken");
    let until = Instant::now() + deadline;
    // The job's own end tells how it went.
    job.ask_unanswered(Command::Stop);
    tokio::select! {
        biased;
        outcome = job.wait() => outcome,
        () = signals.next() => {
            tracing::warn!("told to stop again: ends now");
            job.cancel();
            Err(JobError::Cancelled)
        }
        () = sleep_until(until) => {
            tracing::error!(?deadline, "the last checkpoint did not come in time");
            job.cancel();
            Err(JobError::StopDeadline(deadline))
        }
    }
}
