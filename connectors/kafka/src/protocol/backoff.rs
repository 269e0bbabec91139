//! Pauses between tries.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Sleeper as _, TokioSleeper};
use tokio::time::Instant;

/// The first pause: about what writing the markers of a transaction takes.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);

/// Growing pauses up to a deadline.
#[derive(Debug)]
pub(crate) struct Pauses {
    pauses: ExponentialBackoff,
    until: Instant,
}

impl Pauses {
    pub(crate) fn until(until: Instant) -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST)
            .with_max_delay(LONGEST)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self { pauses: pauses.build(), until }
    }

    /// Waits. Returns false at once, if the deadline would pass meanwhile.
    pub(crate) async fn next(&mut self) -> bool {
        let pause = self.pauses.next().unwrap_or(LONGEST);
        if Instant::now() + pause >= self.until {
            return false;
        }
        TokioSleeper.sleep(pause).await;
        true
    }
}
