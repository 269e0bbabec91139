//! A job with checkpoints that calls another system, until it is killed or has come to its end; see
//! [`Told`] for its arguments.
//!
//! Its exit codes are those of [`JobExit`].
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::process::ExitCode;

use levada_core::ErrorChain;
use levada_engine::store::Store;
use levada_engine::{JobExit, STOP_DEADLINE, run_until_signal};
use levada_tests::calls::{Told, job};

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    #[cfg(feature = "failpoints")]
    let _obedience = levada_testcontainers::crash::obey()?;
    let arguments: Vec<String> = env::args().skip(1).collect();
    let told = Told::of(&arguments)?;
    let store = Store::open(&told.home.join("store").display().to_string()).await?;
    let outcome = run_until_signal(job(&told).start(store)?, STOP_DEADLINE).await;
    match &outcome {
        Ok(report) => tracing::info!(?report, "ended"),
        Err(error) => tracing::error!(error = %ErrorChain(error), "ended"),
    }
    Ok(JobExit::of(&outcome).into())
}
