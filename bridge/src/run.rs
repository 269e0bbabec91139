//! Runs an assembled pipeline: signals, progress, the end.

use std::net::SocketAddr;
use std::time::Duration;

use indicatif::ProgressBar;
use levada_core::{ErrorChain, ErrorClass, Positions};
use levada_engine::{JobError, JobHandle, Progress, Report};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::assemble::{Assembled, assemble};
use crate::cli::{LogFormat, Until};
use crate::config::Pipeline;
use crate::exit::Exit;
use crate::http::{HttpError, Server};
use crate::logs::show_progress;
use crate::observe::{Observed, line};
use crate::startup::announce;

/// Runs a pipeline to its end.
pub(crate) async fn run(
    pipeline: &Pipeline,
    until: Option<Until>,
    format: LogFormat,
    bar: &ProgressBar,
) -> Exit {
    announce(pipeline, until, format);
    // Taken before anything is read: who cannot be watched as he was told to is not started.
    let server = match bind(pipeline.http).await {
        Ok(server) => server,
        Err(error) => return cannot_start(&error),
    };
    let Assembled { mut job, observed } = match assemble(pipeline, until) {
        Ok(assembled) => assembled,
        Err(error) => return cannot_start(&error),
    };
    let server = server.map(|server| tokio::spawn(server.serve(observed.clone())));
    let lines = tokio::spawn(log_lines(observed, pipeline.log_every));
    let watcher = tokio::spawn(watch_progress(job.progress(), bar.clone()));
    let signals = tokio::spawn(stop_on_signals(&job));
    let outcome = job.wait().await;
    [Some(watcher), Some(signals), Some(lines), server].iter().flatten().for_each(JoinHandle::abort);
    bar.finish_and_clear();
    ended(outcome, until)
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<Server>, HttpError> {
    match address {
        Some(address) => Server::bind(address).await.map(Some),
        None => Ok(None),
    }
}

fn cannot_start(error: &(dyn std::error::Error + 'static)) -> Exit {
    tracing::error!(error = %ErrorChain(error), "the pipeline cannot start");
    Exit::Config
}

/// Logs in every interval where the pipeline stands.
async fn log_lines(observed: Observed, every: Duration) {
    let mut ticks = interval(every);
    ticks.tick().await; // the first tick is at once
    let mut before = observed.observe();
    loop {
        ticks.tick().await;
        let now = observed.observe();
        line::log(&now, &before);
        before = now;
    }
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
    while progress.changed().await.is_ok() {
        let progress = progress.borrow_and_update();
        tell_claims(&progress.started_at, &mut told);
        let (total, done) = progress.of_bounded();
        show_progress(&bar, total, done);
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
            let advice = advice_on_record(&error).unwrap_or_else(|| advice(exit));
            tracing::error!(error = %ErrorChain(&error), exit = exit as u8, "{advice}");
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
        JobError::Call { cause, .. } if cause.class == ErrorClass::Fatal => Exit::Refused,
        _ => Exit::Failed,
    }
}

/// Says how to go on from a record at fault, where the pipeline file decides that.
fn advice_on_record(error: &JobError) -> Option<&'static str> {
    match error {
        JobError::Refused { .. } => Some(
            "stopped at a record that cannot be decoded; nothing of its interval was committed, and a restart meets it again: \
             to go on, set \"poison: skip\" below source.kafka, which passes over every such record and counts it, or correct \
             what the pipeline says of key and format",
        ),
        JobError::NoTimestamp { .. } => Some(
            "stopped at a record without an event time; nothing of its interval was committed, and a restart meets it again: to \
             go on, set \"without: record\" below event_time, which takes Kafka's timestamp in its place and counts it, or \
             correct what event_time says of the field",
        ),
        JobError::Call { cause, .. } if cause.is_bad_record() => Some(
            "stopped at a record that cannot be looked up; nothing of its interval was committed, and a restart meets it again: \
             correct the record's place in the lookup's table, or what the pipeline says of the step",
        ),
        JobError::Call { cause, .. } if cause.is_retriable() => Some(
            "stopped because a lookup had no answer in its time; nothing of the interval was committed, the next start goes on \
             behind what is: look after the server that is asked, or set a longer \"timeout\" for the step",
        ),
        _ => None,
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
