//! What a driver holds back until its notification.

/// What the state of the last barrier holds back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Pending {
    /// Transactions, or segments.
    pub transactions: u64,
    /// Records in them.
    pub records: u64,
    /// References to pieces that a [`PieceStore`](super::PieceStore) has stored for them.
    pub pieces: Vec<Vec<u8>>,
}
