//! What the marker says that each transaction writes into itself.

use levada_core::CheckpointId;

/// The newest checkpoint whose marker is visible for the transactional id of a transaction: in the offsets of a group of our
/// own, or in a compacted topic of progress.
///
/// It becomes visible with the records of its transaction or not at all, and an id has one transaction at a time, in the order of
/// their checkpoints; an id under which one was aborted is not used again while its handle is stored. So it is proof for every
/// transaction that is *decided*, and none for one that still waits.
///
/// A marker of a later attempt says nothing: that attempt has committed this transaction too, before its own, or has rolled
/// it back. Whoever sees such a marker was taken over, for a checkpoint is not restored any more once a later attempt has
/// published something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// This checkpoint's is the newest.
    At(CheckpointId),
    /// None was ever visible. Whoever reads group offsets must not say so where they may have expired.
    Never,
    /// There are no markers, or they cannot be read.
    Silent,
}

impl Marker {
    /// Tells whether a transaction of `checkpoint` is visible, if it is decided: `None` without an answer.
    pub(super) fn shows(self, checkpoint: CheckpointId) -> Option<bool> {
        match self {
            Marker::At(newest) if newest.attempt > checkpoint.attempt => None,
            Marker::At(newest) => Some(checkpoint <= newest),
            Marker::Never => Some(false),
            Marker::Silent => None,
        }
    }
}
