//! What a test may count. Written by the relay before it answers an order, so that a test reads what it has caused.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::rule::Direction;

/// The counts of one proxy, all since it began but for the open connections.
#[derive(Debug, Default)]
pub(super) struct Tally {
    open: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
    forwarded: [AtomicU64; 2],
}

impl Tally {
    pub(super) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn forward(&self, direction: Direction, bytes: usize) {
        // A usize fits on every system that this crate runs on.
        self.forwarded[direction.index()].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn set_open(&self, connections: usize) {
        self.open.store(connections, Ordering::Relaxed);
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn forwarded(&self, direction: Direction) -> u64 {
        self.forwarded[direction.index()].load(Ordering::Relaxed)
    }
}
