//! A clock that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use levada_core::{Clock, Timestamp};

#[derive(Debug, Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
