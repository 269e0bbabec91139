//! What a scenario has found.

use std::fmt;

use levada_core::{BoxError, ErrorChain};
use levada_engine::driver::DriverError;
use thiserror::Error;

/// What is wrong. Records are numbered from 1 within each history, in the order in which they were written first; in the
/// suite of atomic sinks by their place, where record 200008 is offset 7 of split 2.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Finding {
    /// Records that must be visible are not.
    #[error("records {records:?} must be visible and are not")]
    Lost {
        /// Their numbers.
        records: Vec<u64>,
    },
    /// Records are visible more often than they may be.
    #[error("records {records:?} are visible more than once")]
    Doubled {
        /// Their numbers.
        records: Vec<u64>,
    },
    /// Records are visible before anything has made them so.
    #[error("records {records:?} are visible too early")]
    Early {
        /// Their numbers.
        records: Vec<u64>,
    },
    /// A record stands behind one that was written later.
    #[error("record {record} is visible behind record {after}, which was written later by the same subtask")]
    OutOfOrder {
        /// The record.
        record: u64,
        /// The one that stands before it.
        after: u64,
    },
    /// A record has another content than the one last written under its key.
    #[error("key {key} has version {found:?}, expected {expected:?}")]
    WrongVersion {
        /// The key.
        key: u64,
        /// The versions that could be right; none means that the key must not be there.
        expected: Vec<u64>,
        /// What is there.
        found: Option<u64>,
    },
    /// Rows and stored positions do not belong together.
    #[error("the stored position of split {split} is {found}, expected {expected}")]
    WrongPosition {
        /// The split's number.
        split: u32,
        /// What it must be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// Something is left in the target that nothing will ever remove.
    #[error("left over in the target: {names:?}")]
    LeftOver {
        /// How the target names them.
        names: Vec<String>,
    },
    /// The sink refused what it must be able to do.
    #[error("the sink failed to {step}")]
    Refused {
        /// What it was to do.
        step: String,
        /// Why it did not.
        #[source]
        cause: BoxError,
    },
    /// The sink did what it must refuse.
    #[error("the sink must refuse to {step}, and did not")]
    Accepted {
        /// What it did.
        step: String,
    },
    /// The sink gave a wrong answer.
    #[error("asked for {question}, the answer is {found}, expected {expected}")]
    Answer {
        /// What was asked.
        question: String,
        /// The right answer.
        expected: String,
        /// The answer.
        found: String,
    },
    /// The target could not be looked at: nothing is said about the sink.
    #[error("the target could not be looked at")]
    Target(#[source] BoxError),
}

impl Finding {
    pub(crate) fn refused(step: impl Into<String>, cause: impl Into<BoxError>) -> Self {
        Finding::Refused { step: step.into(), cause: cause.into() }
    }

    pub(crate) fn driver(step: impl Into<String>) -> impl FnOnce(DriverError) -> Self {
        let step = step.into();
        move |cause| Finding::refused(step, cause)
    }

    pub(crate) fn answer(
        question: impl Into<String>,
        expected: impl fmt::Debug,
        found: impl fmt::Debug,
    ) -> Self {
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        Finding::Answer { question: question.into(), expected, found }
    }
}

/// A scenario that a sink has failed: which, with what finding, and everything that had happened before it.
pub struct Failure {
    scenario: &'static str,
    seed: Option<u64>,
    trail: Vec<String>,
    finding: Finding,
}

impl Failure {
    pub(crate) fn new(
        scenario: &'static str,
        seed: Option<u64>,
        trail: Vec<String>,
        finding: Finding,
    ) -> Self {
        Self { scenario, seed, trail, finding }
    }

    /// Returns the scenario's name.
    pub fn scenario(&self) -> &'static str {
        self.scenario
    }

    /// Returns the seed of a random history, from which [`Histories::replay`](crate::Histories::replay) makes it again.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Returns what happened, in order: steps of the history, and calls of the sink, which are indented.
    pub fn trail(&self) -> &[String] {
        &self.trail
    }

    /// Returns what is wrong.
    pub fn finding(&self) -> &Finding {
        &self.finding
    }
}

/// Prints the scenario, the finding with its causes, the seed, and the whole trail, whose last line is where it was found.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.scenario, ErrorChain(&self.finding))?;
        if let Some(seed) = self.seed {
            writeln!(f, "  seed {seed}")?;
        }
        for line in &self.trail {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}

/// Prints the same: a test that returns a failure prints it so.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}
