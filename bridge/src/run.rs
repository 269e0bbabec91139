//! Runs an assembled pipeline: signals, progress, the end.

use std::time::Duration;

use indicatif::ProgressBar;
use levada_core::{ErrorChain, ErrorClass, Positions};
use levada_engine::{JobError, JobHandle, Progress, Report};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::interval;

use crate::assemble::assemble;
use crate::cli::{LogFormat, Until};
use crate::config::Pipeline;
use crate::exit::Exit;
use crate::logs::show_progress;
use crate::startup::announce;

/// How often an endless run logs where it stands.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Runs a pipeline to its end.
pub(crate) async fn run(
    pipeline: &Pipeline,
    until: Option<Until>,
    format: LogFormat,
    bar: &ProgressBar,
) -> Exit {
    announce(pipeline, until, format);
    let started = assemble(pipeline, until);
    let mut job = match started {
        Ok(job) => job,
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "the pipeline cannot start");
            return Exit::Config;
        }
    };
    let watcher = tokio::spawn(watch_progress(job.progress(), bar.clone()));
    let signals = tokio::spawn(stop_on_signals(&job));
    let outcome = job.wait().await;
    watcher.abort();
    signals.abort();
    bar.finish_and_clear();
    ended(outcome, until)
}

fn stop_on_signals(job: &JobHandle) -> impl Future<Output = ()> + Send + 'static {
    let (stop, cancel) = job.tokens();
    async move {
        let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            tracing::warn!("signals cannot be caught: stopping the process will drop the open interval");
            return;
        };
        for token in [stop, cancel] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            tracing::info!("told to stop");
            token.cancel();
        }
    }
}

async fn watch_progress(mut progress: watch::Receiver<Progress>, bar: ProgressBar) {
    let mut told = Positions::new();
    let mut ticks = interval(LOG_EVERY);
    ticks.tick().await; // the first tick is at once
    let mut last = 0;
    loop {
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() {
                    return;
                }
                let progress = progress.borrow_and_update();
                tell_claims(&progress.started_at, &mut told);
                let (total, done) = progress.of_bounded();
                show_progress(&bar, total, done);
            }
            _ = ticks.tick() => {
                let progress = progress.borrow();
                let read = progress.balance.tally.read;
                tracing::info!(
                    read,
                    written = progress.balance.committed.written,
                    commits = progress.commits,
                    rows_per_commit = progress.balance.committed.written.checked_div(progress.commits).unwrap_or(0),
                    records_per_s = (read - last) / LOG_EVERY.as_secs(),
                    "progress"
                );
                last = read;
            }
        }
    }
}

/// Logs each split once, when it is claimed.
fn tell_claims(started_at: &Positions, told: &mut Positions) {
    for (split, position) in started_at {
        if told.get(split).is_none() {
            tracing::info!(%split, %position, "claimed");
            told.set(split.clone(), position.clone());
        }
    }
}

fn ended(outcome: Result<Report, JobError>, until: Option<Until>) -> Exit {
    match outcome {
        Ok(report) => {
            tracing::info!(balance = %report.balance, "done");
            if until.is_some() {
                println!("balance: {}", report.balance);
            }
            Exit::Done
        }
        Err(error) => {
            let exit = exit_of(&error);
            tracing::error!(error = %ErrorChain(&error), exit = exit as u8, "{}", advice(exit));
            exit
        }
    }
}

fn exit_of(error: &JobError) -> Exit {
    match error {
        error if error.is_fenced() => Exit::Fenced,
        error if error.is_bad_record() => Exit::BadRecord,
        JobError::Shape(_) => Exit::Config,
        JobError::Unbalanced(_) => Exit::Unbalanced,
        JobError::StopDeadline(_) | JobError::Cancelled => Exit::Interrupted,
        JobError::Source { cause, .. } if cause.class == ErrorClass::Fatal => Exit::Refused,
        JobError::Sink { cause, .. } if cause.class == ErrorClass::Fatal => Exit::Refused,
        _ => Exit::Failed,
    }
}

fn advice(exit: Exit) -> &'static str {
    match exit {
        Exit::BadRecord => {
            "stopped at a record that cannot be written; nothing of its interval was committed, and a restart meets it \
             again: correct the table or the pipeline, or move the record out of the way"
        }
        Exit::Fenced => "another process runs this pipeline now; give one of them another name or stop it",
        Exit::Refused => "the pipeline cannot run as things are",
        Exit::Unbalanced => "records were lost or doubled inside the process: please report this",
        Exit::Interrupted => {
            "ended before the last commit; nothing is lost, the next start reads the rest again"
        }
        _ => "the pipeline gave up; what is committed is whole, the next start goes on behind it",
    }
}
