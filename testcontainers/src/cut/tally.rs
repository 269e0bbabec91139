//! What a test may count.

use super::rule::Direction;

/// The counts of one proxy since it began. The relay alone has them and tells them between two turns, so that whoever has
/// read a byte also finds it counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) accepted: u64,
    pub(super) refused: u64,
    forwarded: [u64; 2],
}

impl Tally {
    pub(super) fn forward(&mut self, direction: Direction, bytes: usize) {
        // A usize fits on every system that this crate runs on.
        self.forwarded[direction.index()] += bytes as u64;
    }

    pub(super) fn forwarded(&self, direction: Direction) -> u64 {
        self.forwarded[direction.index()]
    }
}
