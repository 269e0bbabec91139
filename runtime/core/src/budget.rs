//! The byte budget: how much payload may be in flight in one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts payload bytes in flight and says when to stop reading. Cloning shares it.
///
/// One batch is always admitted when nothing else is in flight, so a single record larger than the whole budget
/// still progresses (it then exceeds the budget by itself, not by accumulation).
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: Mutex<usize>,
    /// Signalled on every return; waited for by reader threads only, never by a task.
    returned: Condvar,
}

impl Shared {
    // A poisoned lock only means that a thread died between two additions; the number itself is whole.
    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budget {
    /// Makes a budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(Shared { limit, used: Mutex::new(0), returned: Condvar::new() }) }
    }

    /// Takes `bytes` if they fit, or if nothing is in flight.
    pub fn try_acquire(&self, bytes: usize) -> Option<Permit> {
        let mut used = self.shared.used();
        if *used > 0 && *used + bytes > self.shared.limit {
            return None;
        }
        *used += bytes;
        Some(Permit { shared: Arc::clone(&self.shared), bytes })
    }

    /// Waits up to `patience` until no more than `level` bytes are in flight, and tells whether that is so. Blocks.
    pub fn wait_below(&self, level: usize, patience: Duration) -> bool {
        let used = self.shared.used();
        let (used, _) = self
            .shared
            .returned
            .wait_timeout_while(used, patience, |used| *used > level)
            .unwrap_or_else(PoisonError::into_inner);
        *used <= level
    }

    /// Returns the bytes in flight.
    pub fn used(&self) -> usize {
        *self.shared.used()
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

/// A share of the budget, returned when dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.shared.used() -= self.bytes;
        self.shared.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, Slice, Span};

    #[test]
    fn permit_returns_when_the_last_slice_is_dropped() {
        let budget = Budget::new(10);
        let permit = budget.try_acquire(8);
        let arena = Arena::new(vec![0; 8], permit);
        let slice = Slice::new(&arena, Span::new(2, 3));
        drop(arena);
        assert_eq!(budget.used(), 8);
        assert!(budget.try_acquire(3).is_none());
        drop(slice);
        assert_eq!(budget.used(), 0);
    }

    /// [SRC-28] the budget's part: what is larger than the whole budget is admitted alone.
    #[test]
    fn one_batch_is_always_admitted() {
        let budget = Budget::new(10);
        let huge = budget.try_acquire(40).expect("nothing is in flight");
        assert!(budget.try_acquire(1).is_none());
        drop(huge);
        assert!(budget.try_acquire(1).is_some());
    }

    #[test]
    fn waiting_for_room_ends_when_bytes_return() {
        let budget = Budget::new(10);
        let first = budget.try_acquire(10);
        assert!(!budget.wait_below(5, Duration::ZERO));
        let waiting = budget.clone();
        let waiter = std::thread::spawn(move || waiting.wait_below(5, Duration::from_secs(60)));
        drop(first);
        assert!(waiter.join().expect("waiter"));
    }
}
