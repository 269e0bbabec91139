//! Where a job with checkpoints starts that reads from the end of a topic: found out once, whatever happens then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use levada_core::Timestamp;
use levada_engine::store::Store;
use levada_engine::{CheckpointedHandle, Job, JobError};
use levada_kafka::{KafkaSource, KafkaSourceConfig, StartAt};
use levada_testcontainers::{Kafka, SharedKafka, wait_until};
use levada_tests::process::PATIENCE;
use levada_tests::topic::Topic;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A topic, a folder of checkpoints, and what is shown to the world.
struct Scene {
    kafka: SharedKafka,
    topic: Topic,
    folder: TempDir,
    runtime: Runtime,
    shown: Arc<Mutex<BTreeSet<u64>>>,
}

impl Scene {
    fn new() -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        let topic = Topic::create(kafka.bootstrap(), 1);
        let folder = tempfile::tempdir().expect("a folder");
        Self { kafka, topic, folder, runtime: Runtime::new().expect("a runtime"), shown: Arc::default() }
    }

    fn send(&self, records: usize) {
        for _ in 0..records {
            self.topic.send(Some(0), None, Some("a record"));
        }
        self.topic.flush();
    }

    /// Starts a job that shows each record at once, and takes no checkpoint that nobody asked for.
    fn start(&self, start: &StartAt) -> CheckpointedHandle {
        let config = KafkaSourceConfig::new(self.kafka.bootstrap(), [self.topic.name.as_str()]);
        let config = config.start_at(start.clone());
        let shown = Arc::clone(&self.shown);
        let job = Job::new("starting")
            .source("topic", move |_| KafkaSource::new(config.clone()).expect("settings that can be checked"))
            .map("offset", |input| Ok(input.origin().offset))
            .checkpointed()
            .for_each("show", move |record, _| {
                shown.lock().map_err(|error| error.to_string())?.insert(record.item);
                Ok(())
            });
        let store = self.folder.path().display().to_string();
        self.runtime
            .block_on(async { job.start(Store::open(&store).await.expect("a store")).expect("a job") })
    }

    /// Writes records until one is shown, and ends the job as a crash does: without a last checkpoint.
    fn crash_when_something_is_shown(&self, mut job: CheckpointedHandle) {
        let is_shown = || {
            self.send(1);
            !self.shown().is_empty()
        };
        wait_until(PATIENCE, "a record", is_shown).expect("the job reads");
        job.cancel();
        let ended = self.runtime.block_on(job.wait());
        assert!(matches!(ended, Err(JobError::Cancelled)), "{ended:?}");
    }

    fn shown(&self) -> BTreeSet<u64> {
        self.shown.lock().expect("shown").clone()
    }

    fn take_shown(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.shown.lock().expect("shown"))
    }
}

/// Two lives, with records between them. All that was written since the first record that was shown is shown.
fn nothing_is_passed_over(start: &StartAt) {
    let scene = Scene::new();
    scene.send(5);
    scene.crash_when_something_is_shown(scene.start(start));
    let before = scene.take_shown();
    let first = *before.first().expect("it has shown something");
    assert!(first >= 5, "it began behind what was there: {before:?}");
    scene.send(10);
    scene.crash_when_something_is_shown(scene.start(start));
    let after = scene.take_shown();
    let all: BTreeSet<u64> = before.union(&after).copied().collect();
    let last = *all.last().expect("records");
    assert_eq!(all, (first..=last).collect(), "{start:?}: first {before:?}, then {after:?}");
    assert!(after.len() >= 10, "{after:?}");
}

/// [SRC-13] The job crashes before any checkpoint would have been due, and is started again.
#[test]
fn latest_is_found_out_once_though_the_job_crashes_before_its_first_interval_is_over() {
    nothing_is_passed_over(&StartAt::Latest);
}

/// [SRC-13] [SRC-14] A time that has not come is the end of the topic, as it was when the job was started first.
#[test]
fn a_start_by_time_is_found_out_once_though_the_job_crashes_before_its_first_interval_is_over() {
    nothing_is_passed_over(&StartAt::Timestamp(Timestamp(i64::MAX / 2)));
}
