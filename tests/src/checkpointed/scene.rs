//! A topic, a home, and the program that reads the one and writes the other.

use std::path::Path;
use std::process::Command;

use levada_testcontainers::{Kafka, SharedKafka};
use tempfile::TempDir;

use super::feed::PARTITIONS;
use super::{Target, Told};
use crate::process::Process;
use crate::topic::Topic;

/// What the lives of one job share, one after the other.
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

    /// Puts another topic of the same name in the place of the topic.
    ///
    /// # Panics
    /// Panics if the broker does not.
    #[must_use]
    pub fn with_topic_made_anew(self) -> Self {
        let topic = self.topic.made_anew(self.kafka.bootstrap(), PARTITIONS as i32);
        Self { topic, ..self }
    }

    /// Returns the topic's id, as Kafka's own tool tells it.
    ///
    /// # Panics
    /// Panics if it does not.
    pub fn topic_id(&self) -> String {
        let words = ["--bootstrap-server", self.kafka.bootstrap(), "--describe", "--topic", &self.topic.name];
        let tool = self.kafka.tool("org.apache.kafka.tools.TopicCommand", words);
        let output = tool.expect("Kafka's tools").output().expect("the tool runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let id = text.split_once("TopicId: ").and_then(|(_, rest)| rest.split_whitespace().next());
        id.unwrap_or_else(|| panic!("no id in {text:?}")).to_owned()
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
