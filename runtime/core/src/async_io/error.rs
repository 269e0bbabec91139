//! A call failed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::{BoxError, ErrorClass};

/// A call failed. Cloning shares the cause: all inputs of a batched call may fail of one.
///
/// The class says whose fault it is: [`ErrorClass::BadRecord`] that of the input, every other class not.
#[derive(Debug, Clone)]
pub struct CallError {
    /// What can be done about it.
    pub class: ErrorClass,
    message: String,
    cause: Option<Arc<BoxError>>,
}

impl CallError {
    /// Makes an error that says what was tried, on what, and what to do. The message holds no values of the input.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), cause: None }
    }

    /// Makes the error of an input that cannot be answered.
    pub fn bad_record(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::BadRecord, message)
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        self.cause = Some(Arc::new(cause.into()));
        self
    }

    /// Tells whether the same call may succeed later, with nothing changed on this side.
    pub fn is_retriable(&self) -> bool {
        self.class.is_retriable()
    }

    /// Tells whether the input is at fault; others can be answered.
    pub fn is_bad_record(&self) -> bool {
        self.class == ErrorClass::BadRecord
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause.as_ref().as_ref() as _)
    }
}

/// What is not classed is taken for the fault of the input.
impl From<BoxError> for CallError {
    fn from(cause: BoxError) -> Self {
        Self::bad_record("the call failed").caused_by(cause)
    }
}

impl From<&str> for CallError {
    fn from(message: &str) -> Self {
        Self::bad_record(message)
    }
}

impl From<String> for CallError {
    fn from(message: String) -> Self {
        Self::bad_record(message)
    }
}
