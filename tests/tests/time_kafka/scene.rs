//! A topic, a job that reads it, and a clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levada_core::time::SplitStatus;
use levada_engine::{TimeSnapshot, TimeStatus};
use levada_testcontainers::{Kafka, wait_until};
use levada_tests::process::PATIENCE;
use levada_tests::topic::Topic;
use levada_tests::transaction::Transaction;
use tokio::runtime::Runtime;

use crate::clock::Hands;
use crate::job::{self, Polls, Running, Setup, TIMEOUT};
use crate::lines;
use crate::look::Look as _;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Scene {
    pub(crate) topic: Topic,
    pub(crate) clock: Hands,
    brokers: String,
    setup: Setup,
    polls: Polls,
    running: Running,
    // Last: the job's tasks run in it.
    runtime: Runtime,
}

/// What a job has left behind.
pub(crate) struct Left {
    /// What it has written.
    pub(crate) numbers: Vec<i64>,
    /// Records that were late where they were read, and at the sink.
    pub(crate) late: (u64, u64),
}

impl Scene {
    /// Starts a job over a new topic of the shared broker, and waits until it has read all partitions to their ends.
    pub(crate) fn start(setup: Setup) -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        Self::start_at(kafka.bootstrap(), setup)
    }

    /// The same at another broker.
    pub(crate) fn start_at(brokers: &str, setup: Setup) -> Self {
        lines::keep();
        let topic = Topic::create(brokers, setup.partitions);
        let (clock, runtime) = (Hands::default(), Runtime::new().expect("a runtime"));
        let polls: Polls = (0..setup.subtasks).map(|_| Arc::default()).collect();
        let running = runtime.block_on(job::start(setup, brokers, &topic.name, &clock, &polls));
        let scene = Self { topic, clock, brokers: brokers.to_owned(), setup, polls, running, runtime };
        scene.until("the ends of all partitions", |time| {
            scene.partitions().all(|index| time.is_caught_up(index))
        });
        scene
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.setup.partitions.unsigned_abs()
    }

    pub(crate) fn time(&self) -> TimeStatus {
        self.running.time()
    }

    /// Writes records to a partition, and waits until its own watermark tells that they were read.
    pub(crate) fn read(&self, partition: u32, timestamps: &[i64]) {
        self.write(partition, timestamps);
        let newest = timestamps.iter().max().expect("a record");
        self.until("the records", |time| time.watermark(partition) == newest - 11);
    }

    /// Writes records to a partition.
    pub(crate) fn write(&self, partition: u32, timestamps: &[i64]) {
        self.topic.write_at(partition.cast_signed(), timestamps);
    }

    /// Writes records to a partition in a transaction that stays open.
    pub(crate) fn leave_open(&self, partition: u32, timestamps: &[i64]) -> Transaction {
        Transaction::begin(&self.brokers, &self.topic.name).write_at(partition.cast_signed(), timestamps)
    }

    /// Lets more than the timeout of idleness pass at the ends of all partitions.
    pub(crate) fn let_timeout_pass(&self) {
        let are_at_ends = |time: &TimeSnapshot| {
            time.sources
                .iter()
                .flat_map(|source| &source.splits)
                .all(|times| times.status != SplitStatus::Active)
        };
        self.until("the ends of all partitions", are_at_ends);
        self.clock.jump(TIMEOUT * 2);
    }

    /// Lets an hour pass, and waits until every subtask has ticked since. Only where no records come.
    pub(crate) fn let_an_hour_pass(&self) {
        self.clock.jump(HOUR);
        let before: Vec<u64> = self.polls.iter().map(|polls| polls.load(Ordering::SeqCst)).collect();
        // The first poll from now on may stand behind a tick that began before, and a broker that comes or goes makes some.
        let have_ticked = || {
            self.polls.iter().zip(&before).all(|(polls, before)| polls.load(Ordering::SeqCst) >= before + 5)
        };
        wait_until(PATIENCE, "a tick of every subtask", have_ticked).expect("ticks");
    }

    /// Waits until time stands as the test says.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&TimeSnapshot) -> bool) -> TimeSnapshot {
        let time = self.time();
        let mut last = time.snapshot();
        let found = wait_until(PATIENCE, what, || {
            last = time.snapshot();
            condition(&last)
        });
        assert!(found.is_ok(), "waited for {what}: {last:#?}\n{:#?}", lines::of(&self.topic.name));
        last
    }

    /// Stops the job, and returns what it has left behind.
    pub(crate) fn stop(self) -> Left {
        let time = self.running.time();
        let numbers = self.runtime.block_on(self.running.stop());
        Left { numbers, late: time.snapshot().late() }
    }
}
