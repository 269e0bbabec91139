//! Time as a value: the only place that reads the wall clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, as Kafka counts them; negative before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The watermark of a stream that has promised nothing yet.
    pub const MIN: Timestamp = Timestamp(i64::MIN);

    /// The watermark of a stream that has come to its end.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// Returns the time `after` later, or [`Timestamp::MAX`] where that does not fit. Part of a millisecond counts as a
    /// whole one.
    #[must_use]
    pub fn saturating_add(self, after: Duration) -> Timestamp {
        Timestamp(saturated(i128::from(self.0) + whole_millis(after)))
    }

    /// Returns the time `before` earlier, or [`Timestamp::MIN`] where that does not fit. Part of a millisecond counts as
    /// a whole one.
    #[must_use]
    pub fn saturating_sub(self, before: Duration) -> Timestamp {
        Timestamp(saturated(i128::from(self.0) - whole_millis(before)))
    }

    /// Returns the time from `earlier` to here; nothing where a clock was set back in between.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration may be longer than any timestamp is far from another; in 128 bits nothing overflows.
fn whole_millis(duration: Duration) -> i128 {
    duration.as_nanos().div_ceil(1_000_000) as i128
}

fn saturated(millis: i128) -> i64 {
    millis.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Tells the time. Injected wherever time decides anything, so that tests set it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the wall-clock time.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the clock module
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => Timestamp(i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms)),
        }
    }
}
