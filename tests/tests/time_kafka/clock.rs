//! A clock that a test moves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use levada_core::{Clock, Timestamp};

/// Stands still until it is moved, or let run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hands(Arc<Mutex<Face>>);

#[derive(Debug, Default)]
struct Face {
    at: Duration,
    running_since: Option<Instant>,
}

impl Hands {
    /// Moves it on at once.
    pub(crate) fn jump(&self, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).at += time;
    }

    /// Lets it run from now on, as fast as any.
    pub(crate) fn run(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running_since = Some(Instant::now());
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        let face = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let run = face.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        Timestamp(i64::try_from((face.at + run).as_millis()).unwrap_or(i64::MAX))
    }
}
