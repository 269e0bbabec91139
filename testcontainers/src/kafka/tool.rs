//! Kafka's own tools, from the jars of the broker.

use std::process::Command;

use super::jvm;
use crate::Error;
use crate::cache::{DEFAULT_VERSION, existing_class_archive, jars};
use crate::programs::{java, run_to_end};

pub(crate) fn tool<'a>(class: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command, Error> {
    let jars = jars(DEFAULT_VERSION)?;
    let java = java()?;
    let mut command = Command::new(&java);
    command.args(jvm::quick()).args(jvm::contained(&std::env::temp_dir()));
    // The broker's archive: most of a tool's start is the loading of the same client classes.
    if let Some(archive) = existing_class_archive(&java, &jars) {
        command.args(jvm::archived(&archive));
    }
    // Standard output is the tool's answer: the JVM's own remarks are off, those of the libraries go to standard error.
    command
        .args(["-Xlog:disable", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xmx256m", "-cp"])
        .arg(jars.class_path()?);
    command.arg(class).args(arguments);
    Ok(command)
}

/// Creates a topic with Kafka's own tool.
pub(super) fn create_topic(bootstrap: &str, topic: &str, partitions: u32) -> Result<(), Error> {
    let partitions = partitions.to_string();
    let arguments =
        ["--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", &partitions];
    let mut create = tool("org.apache.kafka.tools.TopicCommand", arguments)?;
    run_to_end("TopicCommand --create", &mut create).map(|_| ())
}
