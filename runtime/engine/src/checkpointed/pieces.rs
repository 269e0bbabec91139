//! Where write-ahead sinks of a job keep the pieces of long intervals: in the job's checkpoint store.

use std::sync::{Arc, OnceLock};

use levada_core::{BoxError, CheckpointId};

use crate::driver::{PieceError, PieceStore};
use crate::store::{PartHome, PartRef, Store, StoreError};

/// The default size of a piece. What a subtask holds in memory is about this and one batch; a store like S3 takes objects of
/// a few MiB well.
pub(super) const PIECE_BYTES: usize = 4 << 20;

/// The store of a job, known once it is started; shared with the sinks that were declared before.
#[derive(Debug, Clone, Default)]
pub(crate) struct PieceHome(Arc<OnceLock<(Store, usize)>>);

impl PieceHome {
    pub(super) fn bind(&self, store: &Store, piece_bytes: usize) {
        // A job is started once.
        self.0.set((store.clone(), piece_bytes)).ok();
    }

    fn store(&self) -> Result<&Store, BoxError> {
        self.0
            .get()
            .map(|(store, _)| store)
            .ok_or_else(|| "the job's checkpoint store is not known yet".into())
    }
}

/// A reference is the part's name, length and checksum, as JSON.
impl PieceStore for PieceHome {
    fn piece_bytes(&self) -> Option<usize> {
        self.0.get().map(|(_, bytes)| *bytes)
    }

    async fn put(&mut self, covered_by: CheckpointId, piece: Vec<u8>) -> Result<Vec<u8>, BoxError> {
        let part = self.store()?.put_piece(covered_by, piece.into()).await?;
        Ok(serde_json::to_vec(&part)?)
    }

    async fn get(&mut self, reference: &[u8]) -> Result<Vec<u8>, PieceError> {
        let part = part_of(reference).map_err(|error| PieceError::Damaged(error.into()))?;
        let store = self.store().map_err(PieceError::Unavailable)?;
        store.get_part(&PartHome::Pieces, &part).await.map_err(|error| match error {
            StoreError::Damaged(_) => PieceError::Damaged(error.into()),
            _ => PieceError::Unavailable(error.into()),
        })
    }
}

/// Reads a reference.
pub(super) fn part_of(reference: &[u8]) -> Result<PartRef, serde_json::Error> {
    serde_json::from_slice(reference)
}
