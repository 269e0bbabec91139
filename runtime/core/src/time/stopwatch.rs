//! A clock that can be stopped.

use std::time::Duration;

use crate::clock::Timestamp;

/// Adds up the time during which it runs. A clock that is set back adds nothing and takes nothing away.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stopwatch {
    elapsed: Duration,
    running_since: Option<Timestamp>,
}

impl Stopwatch {
    /// Counts the time up to `now`, if it runs.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if let Some(since) = self.running_since {
            self.elapsed += now.since(since);
            self.running_since = Some(now);
        }
    }

    /// Runs from `now` on, or stops.
    pub(super) fn run(&mut self, is_running: bool, now: Timestamp) {
        self.running_since = is_running.then_some(now);
    }

    /// Takes back what was counted while nothing was to be seen.
    pub(super) fn take_back(&mut self, time: Duration) {
        self.elapsed = self.elapsed.saturating_sub(time);
    }

    /// Forgets what it has counted.
    pub(super) fn reset(&mut self) {
        self.elapsed = Duration::ZERO;
    }

    pub(super) fn elapsed(self) -> Duration {
        self.elapsed
    }
}
