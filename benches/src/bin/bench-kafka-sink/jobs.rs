//! Our sinks, as jobs.

use std::future::pending;
use std::time::Duration;

use levada_benches::measure::{Run, Stopwatch};
use levada_core::{Budget, CheckpointId, Clock as _, SystemClock};
use levada_engine::checkpoint::CheckpointSettings;
use levada_engine::driver::TwoPhaseOptions;
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, Job, JobState};
use levada_kafka::sink::metrics::SinkMetrics;
use levada_kafka::sink::producing::{AsRead, AtLeastOnceSink, KafkaSinkConfig};
use levada_kafka::sink::two_phase::TransactionalSink;
use tokio::sync::watch;

use crate::load::{BUDGET, Failure, FillerSource, IN_FLIGHT, LINGER};

/// Whose guarantee is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    AtLeastOnce,
    TwoPhase,
}

pub(crate) async fn run(
    sink: Sink,
    interval: Duration,
    brokers: &str,
    topic: &str,
    lasts: Duration,
) -> Result<Run, Failure> {
    let metrics = SinkMetrics::new();
    let config = KafkaSinkConfig::new(brokers).topics([topic]).linger(LINGER).in_flight_bytes(IN_FLIGHT);
    let flow = Job::new("bench")
        .budget(Budget::new(BUDGET))
        .source("memory", move |_| FillerSource::new(lasts))
        .checkpointed();
    let job = match sink {
        Sink::AtLeastOnce => {
            let make = {
                let (config, topic) = (config.clone(), topic.to_owned());
                move |_| AtLeastOnceSink::new(config.clone(), AsRead::to(&topic)).expect("it works")
            };
            flow.idempotent_sink("out", make)
        }
        Sink::TwoPhase => {
            let make = {
                let (topic, metrics) = (topic.to_owned(), metrics.clone());
                move |_| {
                    let sink = TransactionalSink::new(config.clone(), &topic, "out", AsRead::to(&topic));
                    sink.expect("it works").metrics(metrics.clone())
                }
            };
            flow.two_phase_sink("out", TwoPhaseOptions::default(), make)
        }
    };
    let settings = CheckpointSettings { interval: Some(interval), ..CheckpointSettings::default() };
    let job = job.checkpoints(settings).start(Store::open("memory:").await?)?;
    measured(job, &metrics).await
}

/// Measures from the moment when the job runs, as the other one measures from its first batch.
async fn measured(mut job: CheckpointedHandle, metrics: &SinkMetrics) -> Result<Run, Failure> {
    let mut state = job.state();
    state.wait_for(|state| matches!(state, JobState::Running { .. } | JobState::Ended { .. })).await?;
    let watch = Stopwatch::default();
    let mut durable_ms = Vec::new();
    let report = tokio::select! {
        report = job.wait() => report?,
        () = note(&mut state, &mut durable_ms) => unreachable!("it goes on for ever"),
    };
    let mut run = watch.stop(report.sinks.values().map(|sink| sink.published).sum());
    run.durable_ms = durable_ms;
    let seen = metrics.snapshot(SystemClock.now());
    assert_eq!((seen.lost, seen.undecided.len()), (0, 0), "everything is committed");
    let commits = seen.commit_micros.count();
    // Each within a fifth: what the distribution holds of them.
    run.commit_ms = (1..=commits)
        .filter_map(|rank| seen.commit_micros.quantile(rank as f64 / commits as f64))
        .map(|micros| micros / 1000.0)
        .collect();
    Ok(run)
}

/// Notes how long each checkpoint took from its trigger to its entry in the log.
async fn note(state: &mut watch::Receiver<JobState>, durable_ms: &mut Vec<f64>) {
    let mut noted: Option<CheckpointId> = None;
    while state.changed().await.is_ok() {
        let last = state.borrow_and_update().last();
        if let Some(complete) = last.filter(|complete| Some(complete.id) > noted) {
            noted = Some(complete.id);
            durable_ms.push(complete.duration.as_secs_f64() * 1000.0);
        }
    }
    pending().await
}
