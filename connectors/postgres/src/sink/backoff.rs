//! Pauses between attempts.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Sleeper as _, TokioSleeper};

/// Growing pauses with jitter, so that sinks that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Pauses(ExponentialBackoff);

impl Pauses {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(first)
            .with_max_delay(longest)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self(pauses.build())
    }

    pub(crate) async fn next(&mut self) {
        // Without a limit on times the iterator has no end.
        let pause = self.0.next().unwrap_or(Duration::from_secs(1));
        TokioSleeper.sleep(pause).await;
    }
}

/// Pauses for so long.
#[cfg(feature = "lookup")]
pub(crate) async fn pause(length: Duration) {
    TokioSleeper.sleep(length).await;
}
