//! What became of a driver's records.

/// Counts of one driver since it was opened. `written + restored = published + known + lost + pending`, and what the open
/// interval holds is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverTally {
    /// Records taken over.
    pub written: u64,
    /// Records that a checkpoint held back from before.
    pub restored: u64,
    /// Records made visible.
    pub published: u64,
    /// Records that a marker says were visible already: sent before a restart, or by a send whose outcome was not known.
    pub known: u64,
    /// Records of lost transactions, passed over by policy.
    pub lost: u64,
    /// Transactions lost, passed over by policy.
    pub lost_transactions: u64,
    /// Segments that were held back, each time.
    pub held_back: u64,
    /// Transactions that came close to their timeout, or passed it.
    pub timeout_warnings: u64,
}

impl DriverTally {
    /// Adds the counts of another driver.
    pub(crate) fn add(&mut self, other: Self) {
        self.written += other.written;
        self.restored += other.restored;
        self.published += other.published;
        self.known += other.known;
        self.lost += other.lost;
        self.lost_transactions += other.lost_transactions;
        self.held_back += other.held_back;
        self.timeout_warnings += other.timeout_warnings;
    }

    /// Returns the number of records that are not visible yet.
    pub fn pending(&self) -> u64 {
        (self.written + self.restored).saturating_sub(self.published + self.known + self.lost)
    }
}
