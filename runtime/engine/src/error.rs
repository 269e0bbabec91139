//! How a job ends when it does not end well.

use std::time::Duration;

use levada_core::async_io::CallError;
use levada_core::batch::Coordinates;
use levada_core::{BoxError, CheckpointId, SinkError, SourceError, StateError};
use thiserror::Error;

use crate::balance::Unbalanced;
use crate::checkpoint::FailReason;
use crate::checkpointed::RecoveryError;
use crate::driver::{DriverError, TimeoutTooShort};
use crate::plan::ShapeError;
use crate::store::{Refusal, StoreError};

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
    /// The sink of a job with checkpoints gave up.
    #[error("sink {uid:?}, subtask {subtask}")]
    CheckpointedSink {
        /// The stage.
        uid: String,
        /// The subtask.
        subtask: u32,
        /// Why.
        #[source]
        cause: Box<DriverError>,
    },
    /// A call of an async step failed, and the policy is to stop.
    #[error("async step {uid:?}, subtask {subtask}{}", of_record(.coordinates.as_ref()))]
    Call {
        /// The stage.
        uid: String,
        /// The subtask.
        subtask: u32,
        /// The input's place; `None` where the function could not be opened.
        coordinates: Option<Coordinates>,
        /// Why.
        #[source]
        cause: CallError,
    },
    /// The checkpoint store gave up, or was taken over.
    #[error("the checkpoint store")]
    Store(#[source] Box<StoreError>),
    /// No checkpoint may be used.
    #[error("the job cannot go on from its checkpoints")]
    Refusal(#[source] Box<Refusal>),
    /// What became of the newest checkpoint's transactions leaves a decision to a human.
    #[error("the job cannot decide how to go on")]
    Recovery(#[source] Box<RecoveryError>),
    /// A checkpoint holds state of an operator that the job does not have.
    #[error("checkpoint {checkpoint} holds state of {uid:?}, which the job does not have: was it renamed?")]
    UnknownState {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The operator.
        uid: String,
    },
    /// Stored state cannot be dealt out.
    #[error("the state of {uid:?} cannot be restored")]
    State {
        /// The operator.
        uid: String,
        /// Why.
        #[source]
        cause: StateError,
    },
    /// Transactions of a two-phase sink could time out while nothing is wrong. Nothing was changed.
    #[error("sink {uid:?} cannot keep its transactions long enough")]
    TransactionTimeout {
        /// The stage.
        uid: String,
        /// The times.
        #[source]
        cause: TimeoutTooShort,
    },
    /// Checkpoints failed.
    #[error("checkpoints")]
    Checkpoints(#[source] Box<FailReason>),
    /// A step refused a record, and the policy is to stop.
    #[error("record {coordinates} was refused; the next start meets it again")]
    Refused {
        /// The record's place.
        coordinates: Coordinates,
        /// Why.
        #[source]
        reason: BoxError,
    },
    /// A record has no timestamp, and the watermark strategy does not pass it over.
    #[error(
        "record {coordinates} has no timestamp, and the watermark strategy needs one; the next start meets it again"
    )]
    NoTimestamp {
        /// The record's place.
        coordinates: Coordinates,
    },
    /// Records were lost or doubled inside the job: a bug, and the reason to stop at once.
    #[error("records do not add up")]
    Unbalanced(#[from] Unbalanced),
    /// The last commit did not come in time after a stop.
    #[error("the job did not finish its last commit within {0:?} after it was told to stop")]
    StopDeadline(Duration),
    /// The checkpoint that the job was stopped with is complete, and its transactions were gone before they could be
    /// committed. What it covered is read again by the next start.
    #[error("checkpoint {checkpoint}, which the job was stopped with, was rolled back{}: the next start reads its records again",
        .to.map_or(String::new(), |id| format!(" to {id}")))]
    StopRolledBack {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The one before it, of which everything is visible.
        to: Option<CheckpointId>,
    },
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

fn of_record(coordinates: Option<&Coordinates>) -> String {
    coordinates.map_or(String::new(), |coordinates| format!(", record {coordinates}"))
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        JobError::Store(Box::new(error))
    }
}

impl From<Refusal> for JobError {
    fn from(refusal: Refusal) -> Self {
        JobError::Refusal(Box::new(refusal))
    }
}

impl From<RecoveryError> for JobError {
    fn from(error: RecoveryError) -> Self {
        JobError::Recovery(Box::new(error))
    }
}

impl JobError {
    /// Tells whether a restart would come to the same: a human has to decide something first, or another process has taken
    /// over.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            JobError::Store(cause) => cause.is_taken_over() || matches!(**cause, StoreError::Damaged(_)),
            JobError::Shape(_)
            | JobError::Refusal(_)
            | JobError::Recovery(_)
            | JobError::UnknownState { .. }
            | JobError::State { .. }
            | JobError::TransactionTimeout { .. }
            | JobError::StopRolledBack { .. }
            | JobError::Cancelled => true,
            _ => false,
        }
    }

    /// Tells whether another process has taken the job's splits over.
    pub fn is_fenced(&self) -> bool {
        match self {
            JobError::Sink { cause, .. } => cause.is_fenced(),
            JobError::CheckpointedSink { cause, .. } => cause.is_fenced(),
            _ => false,
        }
    }

    /// Tells whether one record is at fault.
    pub fn is_bad_record(&self) -> bool {
        match self {
            JobError::Sink { cause, .. } => cause.coordinates.is_some(),
            JobError::CheckpointedSink { cause, .. } => cause.is_bad_record(),
            JobError::Call { cause, .. } => cause.is_bad_record(),
            JobError::Refused { .. } | JobError::NoTimestamp { .. } => true,
            _ => false,
        }
    }
}
