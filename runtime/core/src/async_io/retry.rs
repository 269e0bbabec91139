//! When a call is made again.

use std::time::Duration;

/// How often and how soon a call that was not answered well is made again.
///
/// The delay is computed from the number of the attempt, so a strategy has no memory, and many inputs share it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum RetryStrategy {
    /// Not at all.
    #[default]
    Never,
    /// After the same delay each time.
    Fixed {
        /// How long to wait.
        delay: Duration,
        /// How many more calls there are at most.
        retries: u32,
    },
    /// After a delay that grows with each attempt.
    Exponential {
        /// How long to wait for the second call.
        first: Duration,
        /// What each further wait is longer by.
        factor: f64,
        /// The longest wait.
        longest: Duration,
        /// How many more calls there are at most.
        retries: u32,
    },
}

impl RetryStrategy {
    /// Tells how long to wait after attempt number `attempt`, from 1, before the next; `None` when it was the last.
    pub fn delay(&self, attempt: u32) -> Option<Duration> {
        match *self {
            RetryStrategy::Never => None,
            RetryStrategy::Fixed { delay, retries } => (attempt <= retries).then_some(delay),
            RetryStrategy::Exponential { first, factor, longest, retries } => {
                (attempt <= retries).then(|| grown(first, factor, longest, attempt))
            }
        }
    }

    /// Tells whether it retries, and if so whether it can: retries and waits above zero, and a factor of at least 1.
    pub(super) fn is_sound(&self) -> bool {
        match *self {
            RetryStrategy::Never => true,
            RetryStrategy::Fixed { delay, retries } => retries > 0 && !delay.is_zero(),
            RetryStrategy::Exponential { first, factor, longest, retries } => {
                retries > 0 && !first.is_zero() && factor >= 1.0 && longest >= first
            }
        }
    }
}

fn grown(first: Duration, factor: f64, longest: Duration, attempt: u32) -> Duration {
    let times = factor.powf(f64::from(attempt.saturating_sub(1)));
    let grown = Duration::try_from_secs_f64(first.as_secs_f64() * times);
    // What does not fit into a duration is longer than the longest.
    grown.map_or(longest, |grown| grown.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [ASY-07] calls = 1 + retries.
    #[test]
    fn fixed_delay_ends_behind_the_last_retry() {
        let delay = Duration::from_millis(10);
        let strategy = RetryStrategy::Fixed { delay, retries: 3 };
        assert_eq!([1, 2, 3].map(|attempt| strategy.delay(attempt)), [Some(delay); 3]);
        assert_eq!(strategy.delay(4), None);
        assert_eq!(RetryStrategy::Never.delay(1), None);
    }

    /// [ASY-07] 100, 200, … capped at 2000 ms; the same again for the next input.
    #[test]
    fn exponential_delay_follows_from_the_attempt() {
        let millis = Duration::from_millis;
        let strategy =
            RetryStrategy::Exponential { first: millis(100), factor: 2.0, longest: millis(2000), retries: 7 };
        for _ in 0..2 {
            let delays: Vec<_> =
                (1..=8).map(|attempt| strategy.delay(attempt).map(|delay| delay.as_millis())).collect();
            let expected = [100, 200, 400, 800, 1600, 2000, 2000].map(Some);
            assert_eq!(delays[..7], expected);
            assert_eq!(delays[7], None);
        }
    }

    #[test]
    fn delay_that_overflows_is_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(60));
        let strategy = RetryStrategy::Exponential { first, factor: 10.0, longest, retries: u32::MAX };
        assert_eq!(strategy.delay(u32::MAX), Some(longest));
    }
}
