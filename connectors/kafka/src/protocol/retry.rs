//! One call of a user's: its deadline, and the pauses between its attempts.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder, Sleeper as _, TokioSleeper};
use tokio::time::Instant;

use super::error::ProtocolError;

/// A coordinator that is busy with the markers of a transaction is done in milliseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// An election takes seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A call that may take several attempts.
#[derive(Debug)]
pub(super) struct Call {
    /// What is asked, for errors: `EndTxn …`.
    pub(super) told: String,
    pub(super) until: Instant,
    within: Duration,
    pauses: ExponentialBackoff,
    /// Why the attempt before failed.
    before: Option<Box<ProtocolError>>,
}

impl Call {
    pub(super) fn new(told: impl Into<String>, within: Duration) -> Self {
        let now = Instant::now();
        // As good as for ever, where that is no instant.
        let until = now.checked_add(within).unwrap_or_else(|| now + Duration::from_secs(u64::from(u32::MAX)));
        let pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self { told: told.into(), until, within, pauses: pauses.build(), before: None }
    }

    /// Pauses before the next attempt.
    ///
    /// # Errors
    /// The error of the attempt, where another one does not help; [`ProtocolError::Deadline`] with it, where there is no
    /// time for one.
    pub(super) async fn pause(&mut self, error: ProtocolError) -> Result<(), ProtocolError> {
        if !error.is_retriable() {
            return Err(error);
        }
        tracing::debug!(call = %self.told, %error, "trying again");
        let left = self.until.saturating_duration_since(Instant::now());
        let error = match error {
            // Of a part of the same call.
            ProtocolError::Deadline { last, .. } => last,
            error => Box::new(error),
        };
        // An attempt that had no time left says nothing; the one before does.
        let told =
            if left.is_zero() && error.is_a_timeout() { self.before.take().unwrap_or(error) } else { error };
        // Without a limit on times the iterator has no end.
        let pause = self.pauses.next().unwrap_or(LONGEST_PAUSE);
        TokioSleeper.sleep(pause.min(left)).await;
        if pause < left {
            self.before = Some(told);
            return Ok(());
        }
        Err(ProtocolError::Deadline { request: self.told.clone(), within: self.within, last: told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Address, ErrorCode};

    fn refused(code: ErrorCode) -> ProtocolError {
        ProtocolError::refused("EndTxn", code)
    }

    /// [KSK-09] in time that the test moves on.
    #[tokio::test(start_paused = true)]
    async fn retriable_refusals_are_tried_again_until_the_deadline_and_not_beyond() {
        let started = Instant::now();
        let mut call = Call::new("EndTxn", Duration::from_secs(30));
        let mut attempts = 0;
        let error = loop {
            attempts += 1;
            if let Err(error) = call.pause(refused(ErrorCode::CONCURRENT_TRANSACTIONS)).await {
                break error;
            }
        };
        assert_eq!(started.elapsed().as_secs(), 30);
        assert!((20..80).contains(&attempts), "{attempts} attempts in 30 s");
        assert_eq!(error.code(), Some(ErrorCode::CONCURRENT_TRANSACTIONS));
        assert_eq!(error.to_string(), "EndTxn did not succeed within 30s");
    }

    /// [KSK-09]
    #[tokio::test(start_paused = true)]
    async fn final_refusal_is_not_tried_again() {
        let started = Instant::now();
        let mut call = Call::new("EndTxn", Duration::from_secs(30));
        let error = call.pause(refused(ErrorCode::PRODUCER_FENCED)).await.expect_err("final");
        assert!(matches!(error, ProtocolError::Refused { .. }), "{error:?}");
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_an_end_is_possible() {
        let mut call = Call::new("EndTxn", Duration::MAX);
        call.pause(refused(ErrorCode::NOT_COORDINATOR)).await.expect("again");
    }

    /// [KSK-26] the message says what is wrong, not that there was no time to find out again.
    #[tokio::test(start_paused = true)]
    async fn attempt_that_had_no_time_left_does_not_hide_the_reason() {
        let mut call = Call::new("EndTxn", Duration::from_secs(1));
        call.pause(refused(ErrorCode::COORDINATOR_NOT_AVAILABLE)).await.expect("again");
        tokio::time::advance(Duration::from_secs(1)).await;
        let broker = Address { host: "b".to_owned(), port: 1 };
        let late = ProtocolError::NoAnswer { broker, request: "EndTxn".to_owned(), within: Duration::ZERO };
        let error = call.pause(late).await.expect_err("no time");
        assert_eq!(error.code(), Some(ErrorCode::COORDINATOR_NOT_AVAILABLE), "{error:?}");
    }
}
