//! A job with checkpoints, from a Kafka topic to a target, until it is killed or stopped; see
//! [`Told`] for its arguments.
//!
//! SIGTERM stops it with a last checkpoint. It exits with 3 when another process has taken the store over, with 1 when
//! anything else is wrong.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::process::ExitCode;

use levada_core::ErrorChain;
use levada_engine::store::Store;
use levada_engine::{CheckpointedReport, JobError};
use levada_tests::checkpointed::{Told, job};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    #[cfg(feature = "failpoints")]
    let _obedience = levada_testcontainers::crash::obey().expect("a place in the environment");
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(report) => {
            tracing::info!(?report, "ended");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(error = %ErrorChain(error.as_ref()), "ended");
            ExitCode::from(if is_taken_over(error.as_ref()) { 3 } else { 1 })
        }
    }
}

async fn run(arguments: &[String]) -> Result<CheckpointedReport, Box<dyn Error>> {
    let told = Told::of(arguments)?;
    let store = Store::open(&told.home.join("store").display().to_string()).await?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut running = job(&told).start(store)?;
    tracing::info!(parallelism = told.parallelism, "started");
    tokio::select! {
        outcome = running.wait() => return Ok(outcome?),
        _ = terminated.recv() => {}
    }
    if let Err(reason) = running.stop().await {
        tracing::error!(?reason, "no last checkpoint");
    }
    Ok(running.wait().await?)
}

fn is_taken_over(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(JobError::Store(cause)) if cause.is_taken_over())
}
