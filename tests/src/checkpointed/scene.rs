//! A topic, a home, and the program that reads the one and writes the other.

use std::path::Path;
use std::process::Command;

use levada_testcontainers::{Kafka, SharedKafka};
use tempfile::TempDir;

use super::feed::PARTITIONS;
use super::{Target, Told};
use crate::process::Process;
use crate::topic::Topic;

/// What the lives of one job share.
#[derive(Debug)]
pub struct Scene {
    kafka: SharedKafka,
    topic: Topic,
    home: TempDir,
    target: Target,
    program: &'static str,
}

impl Scene {
    /// Makes a topic and an empty home; `program` is the path of `checkpointed-under-test`.
    ///
    /// # Panics
    /// Panics if there is no broker.
    pub fn new(program: &'static str, target: Target) -> Self {
        let kafka = Kafka::shared().expect("Kafka");
        let topic = Topic::create(kafka.bootstrap(), PARTITIONS as i32);
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("out")).expect("a folder of the output");
        Self { kafka, topic, home, target, program }
    }

    /// Returns the topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Returns the folder of checkpoints, output and markers.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Returns what a life is told that runs without end.
    pub fn told(&self, parallelism: u32) -> Told {
        Told {
            target: self.target.clone(),
            brokers: self.kafka.bootstrap().to_owned(),
            topic: self.topic.name.clone(),
            home: self.home.path().to_owned(),
            parallelism,
            until_now: false,
            takes_over: false,
            restarts: false,
        }
    }

    /// Returns the command of a life.
    pub fn command(&self, told: &Told) -> Command {
        let mut command = Command::new(self.program);
        command.args(told.arguments());
        command
    }

    /// Starts a life beside any loop.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    pub fn start(&self, command: Command) -> Process {
        Process::start(command, tempfile::tempdir().expect("a folder"))
    }

    /// Lets a last life read to the end of the topic, and checks that it ends well.
    ///
    /// # Panics
    /// Panics if it does not.
    pub fn drain(&self) {
        let told = Told { until_now: true, ..self.told(3) };
        self.start(self.command(&told)).finish().expect_code(0);
    }
}
