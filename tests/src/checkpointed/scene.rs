//! A topic, a home, and the program that reads the one and writes the other.

use std::path::Path;
use std::process::Command;

use levada_testcontainers::{Kafka, SharedKafka, wait_until};
use tempfile::TempDir;

use super::feed::PARTITIONS;
use super::{Target, Told};
use crate::process::{PATIENCE, Process};
use crate::topic::Topic;

/// What the lives of one job share, one after the other.
#[derive(Debug)]
pub struct Scene {
    /// Held while it is used, where it is the one that all share.
    shared: Option<SharedKafka>,
    brokers: String,
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
        let shared = Kafka::shared().expect("Kafka");
        let brokers = shared.bootstrap().to_owned();
        Self { shared: Some(shared), ..Self::at(&brokers, program, target) }
    }

    /// Makes the same at brokers of one's own.
    ///
    /// # Panics
    /// Panics if they do not answer.
    pub fn at(brokers: &str, program: &'static str, target: Target) -> Self {
        let topic = Topic::create(brokers, PARTITIONS as i32);
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("out")).expect("a folder of the output");
        Self { shared: None, brokers: brokers.to_owned(), topic, home, target, program }
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
        let topic = self.topic.made_anew(&self.brokers, PARTITIONS as i32);
        Self { topic, ..self }
    }

    /// Returns the topic's id, as Kafka's own tool tells it.
    ///
    /// # Panics
    /// Panics if it does not.
    pub fn topic_id(&self) -> String {
        let words = ["--bootstrap-server", &self.brokers, "--describe", "--topic", &self.topic.name];
        let shared = self.shared.as_ref().expect("the broker that all share");
        let tool = shared.tool("org.apache.kafka.tools.TopicCommand", words);
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
            brokers: self.brokers.clone(),
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

    /// Starts a life and waits until it has stopped itself at `place`.
    ///
    /// # Panics
    /// Panics if it does not come there.
    pub fn stopped(&self, parallelism: u32, place: &str) -> Process {
        let mut command = self.command(&self.told(parallelism));
        command.env("LEVADA_STOP_AT", place);
        let mut holder = self.start(command);
        holder.wait_until_stopped();
        holder
    }

    /// Takes over from a holder that lives, and waits until the newest attempt that `newest` finds in the output is a later
    /// one than before.
    ///
    /// # Panics
    /// Panics if it does not become one.
    pub fn taken_over(&self, parallelism: u32, newest: impl Fn() -> std::io::Result<u64>) -> Process {
        let before = newest().expect("the output");
        let mut taker = self.start(self.command(&Told { takes_over: true, ..self.told(parallelism) }));
        let goes_on = || newest().is_ok_and(|newest| newest > before);
        let gone_on = wait_until(PATIENCE, "the output of the taker", || goes_on() || taker.has_ended());
        assert!(gone_on.is_ok() && goes_on(), "the taker does not go on:\n{}", taker.log());
        taker
    }

    /// Lets a last life read to the end of the topic, and checks that it ends well.
    ///
    /// # Panics
    /// Panics if it does not.
    pub fn drain(&self) {
        self.drain_with(3);
    }

    /// Does so with so many subtasks.
    ///
    /// # Panics
    /// Panics if it does not end well.
    pub fn drain_with(&self, parallelism: u32) {
        // Where transactions have little time, a machine that is busy lets one pass now and then.
        let told = Told { until_now: true, restarts: true, ..self.told(parallelism) };
        self.start(self.command(&told)).finish().expect_code(0);
    }
}
