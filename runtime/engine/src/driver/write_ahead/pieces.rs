//! Where the records of an open interval go while it grows.

use std::fmt;
use std::future::Future;

use levada_core::{BoxError, CheckpointId};
use thiserror::Error;

/// Stores pieces of segments before their barrier, so that neither memory nor the barrier's state grows with the interval.
///
/// A segment's entry in the state names its pieces; its tail, what is left at the barrier, is in the entry itself. A store
/// of checkpoints implements this: it keeps a piece as long as any checkpoint that it keeps names it, not only the one
/// behind it, and deletes those that none names, which are left over from failures. Pieces of segments already sent
/// are named by older checkpoints only and go with these.
pub trait PieceStore: Send + fmt::Debug {
    /// Returns the size in bytes at which a piece is closed; `None` to keep everything in the entries.
    fn piece_bytes(&self) -> Option<usize>;

    /// Stores a piece durably and returns a reference by which any later process finds it. `covered_by` is the first
    /// checkpoint whose state can name it.
    fn put(
        &mut self,
        covered_by: CheckpointId,
        piece: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, BoxError>> + Send;

    /// Reads a piece.
    ///
    /// # Errors
    /// [`PieceError::Unavailable`] makes the segment wait for the next notification; [`PieceError::Damaged`] fails the task.
    fn get(&mut self, reference: &[u8]) -> impl Future<Output = Result<Vec<u8>, PieceError>> + Send;
}

/// Why a piece was not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PieceError {
    /// The store did not answer; later it may.
    #[error("the piece cannot be read at the moment")]
    Unavailable(#[source] BoxError),
    /// The piece is gone, or is not what was stored: no later try would find it better.
    #[error("the piece is missing or damaged")]
    Damaged(#[source] BoxError),
}

/// Keeps every segment whole in its entry: right for small intervals, and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inline;

impl PieceStore for Inline {
    fn piece_bytes(&self) -> Option<usize> {
        None
    }

    async fn put(&mut self, _: CheckpointId, _piece: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        Err("segments are kept in their entries; no piece can be stored apart".into())
    }

    async fn get(&mut self, _reference: &[u8]) -> Result<Vec<u8>, PieceError> {
        Err(PieceError::Damaged(
            "the segment was stored in pieces, and there is no store of pieces now".into(),
        ))
    }
}
