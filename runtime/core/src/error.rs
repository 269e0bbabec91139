//! Failures, classed by what can be done about them.
//!
//! `Display` of an error tells its own level only; the cause is in `source()`. [`ErrorChain`] prints both.

use std::error::Error;
use std::fmt;

use crate::batch::Coordinates;
use crate::split::SplitId;
use crate::state::StateError;

/// Any error, as a cause.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// What can be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The same attempt may succeed a little later, on the same connection.
    Retry,
    /// The other system is away; connect again until it is back. Never the fault of a record.
    Reconnect,
    /// One record is at fault; the others can go on.
    BadRecord,
    /// Another owner has taken over what this one holds.
    Fenced,
    /// Only a human can help: configuration, privileges, a bug.
    Fatal,
}

impl ErrorClass {
    /// Tells whether the same attempt may succeed later, with nothing changed on this side.
    pub fn is_retriable(self) -> bool {
        matches!(self, ErrorClass::Retry | ErrorClass::Reconnect)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorClass::Retry => "retry",
            ErrorClass::Reconnect => "reconnect",
            ErrorClass::BadRecord => "bad record",
            ErrorClass::Fenced => "fenced",
            ErrorClass::Fatal => "fatal",
        })
    }
}

/// Who holds a split now, as far as the sink knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// Host and process of the owner.
    pub name: String,
    /// Since when, as the sink's system writes a time.
    pub since: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} since {}", self.name, self.since)
    }
}

/// A source failed.
#[derive(Debug)]
pub struct SourceError {
    /// What can be done about it.
    pub class: ErrorClass,
    message: String,
    cause: Option<BoxError>,
}

/// A sink failed.
#[derive(Debug)]
pub struct SinkError {
    /// What can be done about it.
    pub class: ErrorClass,
    message: String,
    /// The record at fault, for [`ErrorClass::BadRecord`].
    pub coordinates: Option<Coordinates>,
    /// The split and who holds it now, for [`ErrorClass::Fenced`].
    pub fenced_by: Option<Box<(SplitId, Owner)>>,
    cause: Option<BoxError>,
}

impl SourceError {
    /// Makes an error that says what was tried, on what, and what to do.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), cause: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}

impl SinkError {
    /// Makes an error that says what was tried, on what, and what to do.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), coordinates: None, fenced_by: None, cause: None }
    }

    /// Makes the error of a record at fault.
    pub fn bad_record(coordinates: Coordinates, message: impl Into<String>) -> Self {
        Self { coordinates: Some(coordinates), ..Self::new(ErrorClass::BadRecord, message) }
    }

    /// Makes the error of an owner that was taken over.
    pub fn fenced(split: SplitId, owner: Owner) -> Self {
        let message = format!("split {split} now belongs to {owner}");
        Self { fenced_by: Some(Box::new((split, owner))), ..Self::new(ErrorClass::Fenced, message) }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Tells whether another owner has taken over.
    pub fn is_fenced(&self) -> bool {
        self.class == ErrorClass::Fenced
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.coordinates {
            Some(coordinates) => write!(f, "record {coordinates}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

const UNREADABLE_STATE: &str = "what was stored with the checkpoint cannot be read";

/// What was stored is still there: a human can bring the program back that understands it.
impl From<StateError> for SourceError {
    fn from(error: StateError) -> Self {
        Self::new(ErrorClass::Fatal, UNREADABLE_STATE).caused_by(error)
    }
}

/// What was stored is still there: a human can bring the program back that understands it.
impl From<StateError> for SinkError {
    fn from(error: StateError) -> Self {
        Self::new(ErrorClass::Fatal, UNREADABLE_STATE).caused_by(error)
    }
}

/// Prints an error and its causes, `: ` between them. A cause that the level above it has said in full, as errors of other
/// crates do, is left out.
#[derive(Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_prints_each_level_once() {
        let cause = std::io::Error::other("connection reset");
        let error = SourceError::new(ErrorClass::Reconnect, "fetch from flights-0").caused_by(cause);
        assert_eq!(error.to_string(), "fetch from flights-0");
        assert_eq!(ErrorChain(&error).to_string(), "fetch from flights-0: connection reset");
    }

    /// Errors of other crates often print their cause, and have it as source, too.
    #[test]
    fn chain_leaves_out_a_cause_that_was_said() {
        let cause = std::io::Error::other("no such bucket");
        let wordy = SourceError::new(ErrorClass::Fatal, "list: no such bucket").caused_by(cause);
        let error = SourceError::new(ErrorClass::Fatal, "read the log").caused_by(wordy);
        assert_eq!(ErrorChain(&error).to_string(), "read the log: list: no such bucket");
    }

    #[test]
    fn bad_record_names_its_coordinates() {
        let place = Coordinates { split: SplitId::new("flights", 2), offset: 7 };
        assert_eq!(SinkError::bad_record(place, "no key").to_string(), "record flights-2@7: no key");
    }
}
