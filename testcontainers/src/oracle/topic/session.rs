//! What every tool of one reading is told, and how its answer is taken.

use std::fmt::{self, Display, Formatter};
use std::process::Output;

use super::ReadError;
use super::error::beginning;
use crate::kafka::tool;
use crate::programs::run_to_end;

/// What a consumer sees of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Records of committed transactions and of none, up to the first record of an open one: `read_committed`.
    Committed,
    /// Every record, aborted or not: `read_uncommitted`.
    Uncommitted,
}

impl Isolation {
    /// Returns the value of the consumer's property `isolation.level`.
    #[must_use]
    pub fn level(self) -> &'static str {
        match self {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        }
    }
}

impl Display for Isolation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.level())
    }
}

/// One topic at one address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session<'a> {
    pub(super) bootstrap: &'a str,
    pub(super) topic: &'a str,
    /// A file with the client's properties.
    pub(super) client_properties: Option<&'a str>,
}

impl<'a> Session<'a> {
    /// Runs a tool with its address, the client's properties and further arguments.
    pub(super) fn run(&self, class: &'static str, arguments: &[&str]) -> Result<Output, ReadError> {
        let mut all = vec!["--bootstrap-server", self.bootstrap];
        if let Some(file) = self.client_properties {
            all.extend(["--command-config", file]);
        }
        all.extend(arguments);
        let run = || run_to_end(class, &mut tool(class, all)?);
        run().map_err(|source| ReadError::Tool {
            topic: self.topic.to_owned(),
            bootstrap: self.bootstrap.to_owned(),
            source,
        })
    }

    /// Takes a tool's standard output as text.
    pub(super) fn text(&self, class: &'static str, output: Output) -> Result<String, ReadError> {
        String::from_utf8(output.stdout)
            .map_err(|error| self.answer(class, "no UTF-8", &String::from_utf8_lossy(error.as_bytes())))
    }

    /// Makes the error for an answer that is not understood.
    pub(super) fn answer(&self, tool: &'static str, reason: &'static str, text: &str) -> ReadError {
        ReadError::Answer { topic: self.topic.to_owned(), tool, reason, text: beginning(text) }
    }
}
