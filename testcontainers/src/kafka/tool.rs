//! Kafka's own tools, from the jars of the broker.

use std::process::Command;

use super::jvm;
use crate::Error;
use crate::cache::jars;
use crate::programs::java;

pub(crate) fn tool<'a>(class: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command, Error> {
    let jars = jars()?;
    let mut command = Command::new(java()?);
    command.args(jvm::quick()).args(jvm::contained(&std::env::temp_dir()));
    // Standard output is the tool's answer; the libraries' own remarks go to standard error.
    command
        .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xmx256m", "-cp"])
        .arg(jars.class_path()?);
    command.arg(class).args(arguments);
    Ok(command)
}
