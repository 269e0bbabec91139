//! A bridge in a process of its own, to be watched, stopped and killed.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

pub use crate::process::{Finished, PATIENCE, Process as Bridge};

/// A bridge that is about to be started.
#[derive(Debug)]
pub struct BridgeCommand {
    command: Command,
    folder: TempDir,
}

impl BridgeCommand {
    /// Runs a pipeline, given as the text of its file. `binary` is the path of `levada-under-test`. Many run at once on the
    /// machine, so metrics are off unless the pipeline says where they are.
    pub fn new(binary: &str, pipeline: &str) -> Self {
        let metrics = if pipeline.contains("\nhttp:") { "" } else { "\nhttp: off\n" };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("pipeline.yaml");
        fs::write(&file, format!("{pipeline}{metrics}")).expect("the pipeline file");
        let mut command = Command::new(binary);
        command.arg("run").arg(&file).env("LEVADA_LOG", "info");
        Self { command, folder }
    }

    /// Ends at the end of the topics.
    #[must_use]
    pub fn until_now(mut self) -> Self {
        self.command.args(["--until", "now"]);
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Returns a command that does the same, for somebody else to start while this one is kept.
    pub fn copy(&self) -> Command {
        let mut copy = Command::new(self.command.get_program());
        copy.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => copy.env(name, value),
                None => copy.env_remove(name),
            };
        }
        copy
    }

    /// Starts it.
    pub fn start(self) -> Bridge {
        Bridge::start(self.command, self.folder)
    }

    /// Starts it and waits for its end.
    pub fn run(self) -> Finished {
        self.start().finish()
    }
}
