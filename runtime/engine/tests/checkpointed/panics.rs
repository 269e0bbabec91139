//! A task that dies of a panic tells nobody. Here nobody has anything to send to it either: the source has emitted two numbers
//! and waits, and no checkpoint is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use levada_core::template::{IdempotentSink, WriteContext};
use levada_core::{Batch, SinkContext, SinkError};
use levada_engine::{CheckpointedJob, Job, JobError};

use crate::scene::{Scene, restarts};

/// Where a task dies, and how often it has.
#[derive(Debug, Clone)]
struct Death {
    place: &'static str,
    count: Arc<AtomicU32>,
}

impl Death {
    fn at(place: &'static str) -> Self {
        Self { place, count: Arc::default() }
    }

    fn pass(&self, place: &str) {
        if self.place == place {
            self.count.fetch_add(1, Ordering::SeqCst);
            std::panic::panic_any("as the test says");
        }
    }
}

#[derive(Debug)]
struct Mortal {
    subtask: u32,
    death: Death,
}

impl IdempotentSink<u64> for Mortal {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        if self.subtask == 1 {
            self.death.pass("open");
        }
        Ok(())
    }

    async fn upsert(&mut self, _: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        self.death.pass("write");
        Ok(())
    }
}

fn job(scene: &Scene, death: &Death) -> CheckpointedJob {
    let (in_step, in_sink) = (death.clone(), death.clone());
    scene.gate.raise(2);
    Job::new("mortal")
        .parallelism(2)
        .source_function("numbers", scene.source())
        .key_by("itself", |number| *number)
        .map("step", move |input| {
            in_step.pass("step");
            Ok(*input.item())
        })
        .key_by("itself again", |number| *number)
        .idempotent_sink("sink", move |subtask| Mortal { subtask, death: in_sink.clone() })
}

/// Runs a job to its end. One that does not notice anything is idle, and the paused clock goes on to the end of the day.
async fn failure(scene: &Scene, job: CheckpointedJob) -> JobError {
    let mut job = scene.start(job);
    let ended = tokio::time::timeout(Duration::from_secs(24 * 3600), job.wait()).await;
    ended.expect("the job notices the panic").unwrap_err()
}

/// [CHK-16] In a task of a sink, while it opens and when it writes, and in one between two exchanges.
#[tokio::test(start_paused = true)]
async fn panic_of_a_task_ends_the_attempt_though_nobody_sends() {
    for place in ["open", "step", "write"] {
        let (scene, death) = (Scene::new().await, Death::at(place));
        let error = failure(&scene, job(&scene, &death)).await;
        assert!(matches!(error, JobError::Panicked { .. }), "{place}: {error:?}");
        if place == "open" {
            assert!(matches!(error, JobError::Panicked { subtask: 1 }), "{error:?}");
        }
    }
}

/// [CHK-16] A panic is a failure like any other.
#[tokio::test(start_paused = true)]
async fn job_is_restarted_after_a_panic() {
    for place in ["open", "step", "write"] {
        let (scene, death) = (Scene::new().await, Death::at(place));
        failure(&scene, job(&scene, &death).restarts(restarts(2))).await;
        assert!(death.count.load(Ordering::SeqCst) >= 3, "{place}");
    }
}
