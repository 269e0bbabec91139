//! How a job ends when it does not end well.

use std::time::Duration;

use levada_core::batch::Coordinates;
use levada_core::{BoxError, SinkError, SourceError};
use thiserror::Error;

use crate::balance::Unbalanced;
use crate::plan::ShapeError;

/// Why a job gave up. In every case the open intervals were dropped: what is committed is whole, the rest is read
/// again by the next start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JobError {
    /// The stages cannot keep the promise.
    #[error("the job's shape is refused")]
    Shape(#[from] ShapeError),
    /// The source gave up.
    #[error("source {uid:?}, subtask {subtask}")]
    Source {
        /// The stage.
        uid: String,
        /// The subtask.
        subtask: u32,
        /// Why.
        #[source]
        cause: SourceError,
    },
    /// The sink gave up.
    #[error("sink {uid:?}, subtask {subtask}")]
    Sink {
        /// The stage.
        uid: String,
        /// The subtask.
        subtask: u32,
        /// Why.
        #[source]
        cause: SinkError,
    },
    /// A step refused a record, and the policy is to stop.
    #[error("record {coordinates} was refused; the next start meets it again")]
    Refused {
        /// The record's place.
        coordinates: Coordinates,
        /// Why.
        #[source]
        reason: BoxError,
    },
    /// Records were lost or doubled inside the job: a bug, and the reason to stop at once.
    #[error("records do not add up")]
    Unbalanced(#[from] Unbalanced),
    /// The last commit did not come in time after a stop.
    #[error("the job did not finish its last commit within {0:?} after it was told to stop")]
    StopDeadline(Duration),
    /// The job was told to end at once.
    #[error("the job was cancelled")]
    Cancelled,
    /// A task died by a panic: a bug.
    #[error("a task of subtask {subtask} panicked")]
    Panicked {
        /// The subtask.
        subtask: u32,
    },
}

impl JobError {
    /// Tells whether another process has taken the job's splits over.
    pub fn is_fenced(&self) -> bool {
        matches!(self, JobError::Sink { cause, .. } if cause.is_fenced())
    }

    /// Tells whether one record is at fault.
    pub fn is_bad_record(&self) -> bool {
        let by_sink = matches!(self, JobError::Sink { cause, .. } if cause.coordinates.is_some());
        by_sink || matches!(self, JobError::Refused { .. })
    }
}
