//! The job: numbers, a call for each, files.

use std::time::Duration;

use levada_core::async_io::{AsyncSettings, Order, RetryStrategy};
use levada_engine::checkpoint::{CheckpointSettings, RestartStrategy};
use levada_engine::driver::{Retry, TwoPhaseOptions};
use levada_engine::{CheckpointedJob, Job};
use levada_files::{FileSink, FileSinkConfig};

use super::Told;
use super::service::Service;
use super::ways::Ways;

/// Short, so that a life of some hundred milliseconds has several.
const INTERVAL: Duration = Duration::from_millis(40);

/// Longer than a machine that is busy takes for all attempts of a call.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Enough that a service that is busy now and then answers in the end.
const CALLS_AGAIN: RetryStrategy = RetryStrategy::Fixed { delay: Duration::from_millis(2), retries: 100 };

/// A failure of a task is over at once: what fails are the tests' own fail points.
const RESTARTS: RestartStrategy =
    RestartStrategy::FixedDelay { attempts: u32::MAX, delay: Duration::from_millis(10) };

/// How often a commit is tried again before the job fails: the tests' own fail points.
const RETRY: Retry =
    Retry { first_pause: Duration::from_millis(20), longest_pause: Duration::from_millis(200), attempts: 20 };

/// Makes the job that a life is told to run.
pub fn job(told: &Told) -> CheckpointedJob {
    let ends = told.ends.then(|| told.home.join("ends"));
    let ways = move |_| ends.clone().map_or_else(Ways::without_end, Ways::up_to_ends);
    let settings = AsyncSettings::new().capacity(told.capacity).timeout(TIMEOUT).retry(CALLS_AGAIN);
    let settings = match told.order {
        Order::Unordered => settings.unordered(),
        _ => settings.ordered(),
    };
    // A retry that the end of the stream finds waiting has one attempt left: nothing may fail then.
    let service = Service::new(told.seed, !told.ends);
    let config = FileSinkConfig::new(told.home.join("out"), "answers").suffix(".txt");
    let options = TwoPhaseOptions { retry: RETRY, ..TwoPhaseOptions::default() };
    let job = Job::new("calls")
        .parallelism(told.parallelism)
        .source_function("numbers", ways)
        .async_map("answers", service, settings)
        .two_phase_sink("files", options, move |_| FileSink::<String>::new(config.clone()))
        .checkpoints(CheckpointSettings { interval: Some(INTERVAL), ..CheckpointSettings::default() });
    if told.restarts { job.restarts(RESTARTS) } else { job }
}
