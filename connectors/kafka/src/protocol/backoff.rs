//! Pauses between tries.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Sleeper as _, TokioSleeper};
use tokio::time::Instant;

use super::error::ProtocolError;

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

/// One question, repeated until its deadline.
#[derive(Debug)]
pub(super) struct Tries {
    api: &'static str,
    within: Duration,
    pauses: Pauses,
}

impl Tries {
    pub(super) fn new(api: &'static str, within: Duration) -> Self {
        Self { api, within, pauses: Pauses::until(Instant::now() + within) }
    }

    pub(super) fn until(&self) -> Instant {
        self.pauses.until
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// There is none: the error is for good, or the deadline would pass.
    pub(super) async fn again(&mut self, error: ProtocolError) -> Result<(), ProtocolError> {
        if !error.is_retriable() {
            return Err(error);
        }
        let Self { api, within, .. } = *self;
        tracing::debug!(error = %levada_core::ErrorChain(&error), "{api} is tried again");
        match self.pauses.next().await {
            true => Ok(()),
            false => Err(ProtocolError::OutOfTime { api, within, cause: Box::new(error) }),
        }
    }
}
