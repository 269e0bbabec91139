//! Whether, and when, a failed job is restarted.

use std::time::Duration;

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum RestartStrategy {
    /// The job ends with its first failure.
    #[default]
    None,
    /// Every restart comes after the same delay.
    FixedDelay {
        /// How many restarts there are, in all.
        attempts: u32,
        /// From a failure to its restart.
        delay: Duration,
    },
    /// The delay grows with every failure, and starts anew after a quiet time.
    Exponential(
        /// How it grows.
        Backoff,
    ),
}

/// A delay that grows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The first delay.
    pub initial: Duration,
    /// The longest delay, with its jitter.
    pub max: Duration,
    /// How much longer each delay is than the one before; less than 1 counts as 1.
    pub multiplier: f64,
    /// How much a delay is shortened or lengthened at random, as a part of it: 0 to 1.
    pub jitter: f64,
    /// How long the job must run after a restart for the delay, and the count of attempts, to start anew.
    pub reset_after: Duration,
    /// How many restarts there are without such a quiet time between them; `None`: any number.
    pub attempts: Option<u32>,
}

impl Default for Backoff {
    /// 1 s, growing by a half up to 1 min, a tenth more or less; anew after an hour; for ever.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(60),
            multiplier: 1.5,
            jitter: 0.1,
            reset_after: Duration::from_secs(3600),
            attempts: None,
        }
    }
}

/// What to do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Restart the job after this delay.
    After(Duration),
    /// End the job.
    GiveUp,
}

/// Counts the failures of a job and decides about each.
#[derive(Debug, Clone)]
pub struct Restarts {
    strategy: RestartStrategy,
    /// Restarts so far; with a backoff, since the last quiet time.
    count: u32,
    /// The delay before jitter of the last restart.
    delay: Duration,
    /// When the job was restarted last.
    restarted_at: Option<Duration>,
}

impl Restarts {
    /// Begins with a job that has not failed.
    pub fn new(strategy: RestartStrategy) -> Self {
        Self { strategy, count: 0, delay: Duration::ZERO, restarted_at: None }
    }

    /// Returns how many restarts there were; with a backoff, since the last quiet time.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The job failed at `now`, a time on any monotonic clock. `random` lies between 0 and 1; only the jitter depends on it.
    pub fn failed(&mut self, now: Duration, random: f64) -> Restart {
        let restart = match self.strategy {
            RestartStrategy::None => Restart::GiveUp,
            RestartStrategy::FixedDelay { attempts, delay } => self.within(Some(attempts), delay),
            RestartStrategy::Exponential(backoff) => self.backed_off(backoff, now, random),
        };
        if let Restart::After(delay) = restart {
            self.count = self.count.saturating_add(1);
            self.restarted_at = Some(now.saturating_add(delay));
        }
        restart
    }

    fn within(&self, attempts: Option<u32>, delay: Duration) -> Restart {
        if attempts.is_none_or(|attempts| self.count < attempts) {
            Restart::After(delay)
        } else {
            Restart::GiveUp
        }
    }

    fn backed_off(&mut self, backoff: Backoff, now: Duration, random: f64) -> Restart {
        let ran_for = self.restarted_at.map(|restarted_at| now.saturating_sub(restarted_at));
        let is_quiet = ran_for.is_some_and(|ran_for| ran_for >= backoff.reset_after);
        if is_quiet {
            self.count = 0;
        }
        self.delay = if self.count == 0 {
            backoff.initial.min(backoff.max)
        } else {
            // `f64::max` takes the other one for a number that is none.
            scaled(self.delay, backoff.multiplier.max(1.0), backoff.max)
        };
        let spread = part(backoff.jitter) * (2.0 * part(random) - 1.0);
        self.within(backoff.attempts, scaled(self.delay, 1.0 + spread, backoff.max))
    }
}

/// Multiplies a delay, up to `max`.
fn scaled(delay: Duration, factor: f64, max: Duration) -> Duration {
    Duration::try_from_secs_f64(delay.as_secs_f64() * factor).map_or(max, |scaled| scaled.min(max))
}

/// Brings a number between 0 and 1, and what is none to 0.
fn part(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn exponential() -> Backoff {
        Backoff {
            multiplier: 2.0,
            jitter: 0.0,
            max: SECOND * 10,
            reset_after: SECOND * 60,
            ..Backoff::default()
        }
    }

    /// [CHK-16]
    #[test]
    fn no_strategy_gives_up_at_once() {
        assert_eq!(Restarts::new(RestartStrategy::None).failed(SECOND, 0.5), Restart::GiveUp);
    }

    /// [CHK-16]
    #[test]
    fn fixed_delay_gives_up_after_its_attempts_however_far_apart() {
        let mut restarts = Restarts::new(RestartStrategy::FixedDelay { attempts: 2, delay: SECOND * 5 });
        assert_eq!(restarts.failed(SECOND, 0.0), Restart::After(SECOND * 5));
        assert_eq!(restarts.failed(SECOND * 100_000, 1.0), Restart::After(SECOND * 5));
        assert_eq!(restarts.failed(SECOND * 200_000, 0.5), Restart::GiveUp);
        assert_eq!(restarts.count(), 2);
    }

    /// [CHK-16]
    #[test]
    fn exponential_delay_doubles_up_to_its_maximum() {
        let mut restarts = Restarts::new(RestartStrategy::Exponential(exponential()));
        let delays: Vec<_> = (0..6).map(|second| restarts.failed(SECOND * second, 0.5)).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10].map(|seconds| Restart::After(SECOND * seconds)));
    }

    /// [CHK-16] The quiet time counts from the restart, not from the failure before it.
    #[test]
    fn exponential_delay_starts_anew_after_a_quiet_time() {
        let mut restarts = Restarts::new(RestartStrategy::Exponential(exponential()));
        assert_eq!(restarts.failed(SECOND * 10, 0.5), Restart::After(SECOND)); // runs again at 11
        assert_eq!(restarts.failed(SECOND * 70, 0.5), Restart::After(SECOND * 2)); // after 59; again at 72
        assert_eq!(restarts.failed(SECOND * 132, 0.5), Restart::After(SECOND)); // after 60
        assert_eq!(restarts.count(), 1);
    }

    /// [CHK-16]
    #[test]
    fn jitter_moves_a_delay_by_its_part_in_both_directions_and_not_the_next_one() {
        let jittered = Backoff { jitter: 0.1, ..exponential() };
        let mut restarts = Restarts::new(RestartStrategy::Exponential(jittered));
        assert_eq!(restarts.failed(SECOND, 0.0), Restart::After(Duration::from_millis(900)));
        assert_eq!(restarts.failed(SECOND, 1.0), Restart::After(Duration::from_millis(2200)));
        assert_eq!(restarts.failed(SECOND, 0.5), Restart::After(SECOND * 4));
        assert_eq!(restarts.failed(SECOND, 0.5), Restart::After(SECOND * 8));
        assert_eq!(restarts.failed(SECOND, 1.0), Restart::After(SECOND * 10));
    }

    /// [CHK-16]
    #[test]
    fn exponential_delay_gives_up_after_its_attempts_unless_it_was_quiet_between() {
        let bounded = Backoff { attempts: Some(2), ..exponential() };
        let mut restarts = Restarts::new(RestartStrategy::Exponential(bounded));
        assert_eq!(restarts.failed(SECOND, 0.5), Restart::After(SECOND));
        assert_eq!(restarts.failed(SECOND, 0.5), Restart::After(SECOND * 2));
        assert_eq!(restarts.clone().failed(SECOND * 62, 0.5), Restart::GiveUp);
        assert_eq!(restarts.failed(SECOND * 63, 0.5), Restart::After(SECOND));
    }

    /// [CHK-16]
    #[test]
    fn delay_stays_within_its_bounds_for_any_number() {
        for odd in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            let backoff = Backoff { multiplier: odd, jitter: odd, ..exponential() };
            let mut restarts = Restarts::new(RestartStrategy::Exponential(backoff));
            for _ in 0..100 {
                let Restart::After(delay) = restarts.failed(SECOND, odd) else { panic!("gave up") };
                assert!(delay <= backoff.max, "{delay:?}");
            }
        }
    }
}
