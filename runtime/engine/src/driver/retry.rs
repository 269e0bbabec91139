//! Attempts and the pauses between them.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Sleeper as _, TokioSleeper};

/// How often something is tried within one notification, and how long the pauses grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The pause behind the first attempt; it doubles.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How many attempts in all, at least one.
    pub attempts: u32,
}

/// About a minute in all.
impl Default for Retry {
    fn default() -> Self {
        Self { first_pause: Duration::from_millis(100), longest_pause: Duration::from_secs(10), attempts: 12 }
    }
}

impl Retry {
    pub(super) fn pauses(self) -> Pauses {
        let growing = ExponentialBuilder::new()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .with_factor(2.0)
            .with_jitter()
            .with_max_times(self.attempts.saturating_sub(1) as usize);
        Pauses(growing.build())
    }
}

/// The pauses between the attempts at one thing. Their jitter keeps subtasks that failed together from coming together.
#[derive(Debug)]
pub(super) struct Pauses(ExponentialBackoff);

impl Pauses {
    /// Waits for the next attempt; `false` when there is none.
    pub(super) async fn wait(&mut self) -> bool {
        let Some(pause) = self.0.next() else { return false };
        TokioSleeper.sleep(pause).await;
        true
    }
}
