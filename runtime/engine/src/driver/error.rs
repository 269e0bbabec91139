//! How a driver fails its task.

use levada_core::template::Marker;
use levada_core::{BoxError, CheckpointId, SinkError, StateError};
use thiserror::Error;

/// Why a driver gave up. What was pending is still in the latest complete checkpoint.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The sink failed in a step that has no second try.
    #[error("the sink failed to {step}")]
    Sink {
        /// The step.
        step: &'static str,
        /// Why.
        #[source]
        cause: SinkError,
    },
    /// The committer of a write-ahead sink failed in a step that has no second try.
    #[error("the committer failed to {step}")]
    Committer {
        /// The step.
        step: &'static str,
        /// Why.
        #[source]
        cause: SinkError,
    },
    /// A transaction of a complete checkpoint will never be visible: its records are gone.
    #[error("{records} records of checkpoint {checkpoint} are lost with transaction {handle}")]
    Lost {
        /// The transaction, as its handle prints.
        handle: String,
        /// The checkpoint that covers it.
        checkpoint: CheckpointId,
        /// How many records were written into it.
        records: u64,
        /// What the target says.
        #[source]
        cause: Box<SinkError>,
    },
    /// A transaction could not be committed yet. It and those behind it stay in the checkpoint.
    #[error(
        "transaction {handle} with {records} records of checkpoint {checkpoint} was not committed in {attempts} attempts and waits"
    )]
    Uncommitted {
        /// The transaction, as its handle prints.
        handle: String,
        /// The checkpoint that covers it.
        checkpoint: CheckpointId,
        /// How many records were written into it.
        records: u64,
        /// How often it was tried.
        attempts: u32,
        /// Why the last attempt failed.
        #[source]
        cause: Box<SinkError>,
    },
    /// The stream has ended, and its last segments could not be sent.
    #[error(
        "{segments} segments with {records} records could not be sent with the last checkpoint {checkpoint}"
    )]
    Unsent {
        /// The last checkpoint.
        checkpoint: CheckpointId,
        /// How many segments wait.
        segments: usize,
        /// How many records are in them.
        records: u64,
        /// Why the first of them waits; nothing when the sink said no without an error.
        #[source]
        cause: Option<BoxError>,
    },
    /// A segment cannot be sent however often it is tried: a record is at fault, or another process has taken over. It stays
    /// in the checkpoint.
    #[error("segment {marker} cannot be sent")]
    Unsendable {
        /// The segment's marker.
        marker: Marker,
        /// Why; it names the record.
        #[source]
        cause: Box<SinkError>,
    },
    /// A part of a segment is missing or damaged: its records will never be sent, so nothing behind them may be.
    #[error("piece {piece} of {pieces} of segment {marker} with {records} records cannot be read")]
    Unreadable {
        /// The segment's marker.
        marker: Marker,
        /// How many records are in the segment.
        records: u64,
        /// Which one, from 1.
        piece: usize,
        /// How many there are. The last one is what the checkpoint's state holds of the segment itself.
        pieces: usize,
        /// What is wrong with it.
        #[source]
        cause: BoxError,
    },
    /// A segment was sent, but not its marker with it, as the committer has promised.
    #[error("segment {marker} was sent without its marker, which was to be committed with the data")]
    MarkerMissing {
        /// The marker.
        marker: Marker,
    },
    /// A segment has never been sent, but its marker is there: another job has the same name, the checkpoints were replaced by
    /// an empty store, or a later opening has sent it.
    #[error(
        "segment {marker} was never sent, but its marker is there: the name of the job is used twice, or its checkpoints were \
         replaced by an empty store; remove the job's markers if it is to start anew"
    )]
    MarkerTaken {
        /// The marker.
        marker: Marker,
    },
    /// A piece of a segment could not be stored.
    #[error("a piece of a segment could not be stored")]
    Piece(#[source] BoxError),
    /// Stored state is damaged or of a later version.
    #[error("stored state cannot be read")]
    State(#[from] StateError),
    /// A record came behind the end of the stream.
    #[error("a record was written after the end of the stream")]
    AfterFinish,
    /// A barrier came twice or late.
    #[error("barrier {found} is below {lowest}, the next one that can come")]
    OutOfOrder {
        /// The barrier.
        found: CheckpointId,
        /// The lowest possible.
        lowest: CheckpointId,
    },
    /// The driver was used before it was opened.
    #[error("the driver is not open")]
    NotOpen,
}

impl DriverError {
    /// Makes a function that adds the step to a sink's error.
    pub(crate) fn sink(step: &'static str) -> impl FnOnce(SinkError) -> Self {
        move |cause| DriverError::Sink { step, cause }
    }

    /// Makes a function that adds the step to a committer's error.
    pub(crate) fn committer(step: &'static str) -> impl FnOnce(SinkError) -> Self {
        move |cause| DriverError::Committer { step, cause }
    }

    /// Tells whether another process has taken over.
    pub fn is_fenced(&self) -> bool {
        match self {
            DriverError::Sink { cause, .. } | DriverError::Committer { cause, .. } => cause.is_fenced(),
            DriverError::Lost { cause, .. } | DriverError::Unsendable { cause, .. } => cause.is_fenced(),
            _ => false,
        }
    }

    /// Tells whether one record is at fault.
    pub fn is_bad_record(&self) -> bool {
        match self {
            DriverError::Sink { cause, .. } => cause.coordinates.is_some(),
            DriverError::Unsendable { cause, .. } => cause.coordinates.is_some(),
            _ => false,
        }
    }
}
