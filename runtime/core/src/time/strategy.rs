//! How a source tells time.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::generator::{BoundedOutOfOrderness, BoxGenerator, NoWatermarks, Punctuated};
use super::timestamps::{TimestampAssigner, TimestampFrom, WithoutTimestamp};
use crate::clock::Timestamp;

/// How long a split must have been at its end before the leader is asked whether it is idle. Always more than nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdleTimeout(Duration);

impl IdleTimeout {
    /// [TIM-05] Checks the timeout.
    ///
    /// # Errors
    /// It is zero.
    pub fn new(timeout: Duration) -> Result<Self, StrategyError> {
        if timeout.is_zero() { Err(StrategyError::ZeroIdleTimeout) } else { Ok(Self(timeout)) }
    }

    /// Returns the time.
    pub fn get(self) -> Duration {
        self.0
    }
}

/// A group of sources that wait for each other, and how far one may run ahead.
///
/// A group lives in one process: two processes that read the same topics do not wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftLimit {
    /// The group's name.
    pub group: Arc<str>,
    /// How far the watermark of a split may be ahead of the group's smallest.
    pub max_drift: Duration,
}

/// A watermark strategy that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StrategyError {
    /// Every split at its end would be idle at once.
    ZeroIdleTimeout,
    /// Watermarks would be asked for without end.
    ZeroInterval,
}

impl fmt::Display for StrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ZeroIdleTimeout => "the idle timeout must be longer than zero",
            Self::ZeroInterval => "the interval between watermarks must be longer than zero",
        })
    }
}

impl Error for StrategyError {}

/// Where timestamps and watermarks come from, when a split is idle, and how far it may run ahead.
pub struct WatermarkStrategy<T> {
    generator: Arc<dyn Fn() -> BoxGenerator<T> + Send + Sync>,
    timestamps: TimestampFrom<T>,
    otherwise: WithoutTimestamp,
    idle_timeout: Option<IdleTimeout>,
    drift: Option<DriftLimit>,
    interval: Duration,
}

impl<T: 'static> WatermarkStrategy<T> {
    /// The time between two watermarks of a periodic generator, unless set.
    pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(200);

    /// Makes a generator for every split by `generator`. Timestamps are the source's, splits are never idle, nobody waits.
    pub fn custom(generator: impl Fn() -> BoxGenerator<T> + Send + Sync + 'static) -> Self {
        Self {
            generator: Arc::new(generator),
            timestamps: TimestampFrom::Origin,
            otherwise: WithoutTimestamp::default(),
            idle_timeout: None,
            drift: None,
            interval: Self::DEFAULT_INTERVAL,
        }
    }

    /// Allows records to be older than the newest one of their split by `bound`.
    pub fn bounded_out_of_orderness(bound: Duration) -> Self {
        Self::custom(move || Box::new(BoundedOutOfOrderness::new(bound)))
    }

    /// Trusts that timestamps never go back within a split.
    pub fn monotonic() -> Self {
        Self::bounded_out_of_orderness(Duration::ZERO)
    }

    /// Generates none: the source emits its own, or nobody needs them.
    pub fn none() -> Self {
        Self::custom(|| Box::new(NoWatermarks))
    }

    /// Asks a function about every record.
    pub fn punctuated<F>(watermark_of: F) -> Self
    where
        F: Fn(&T, Timestamp) -> Option<Timestamp> + Clone + Send + Sync + 'static,
    {
        Self::custom(move || Box::new(Punctuated::new(watermark_of.clone())))
    }

    /// Sets where timestamps come from, and what becomes of a record without one.
    #[must_use]
    pub fn timestamps(mut self, from: TimestampFrom<T>, otherwise: WithoutTimestamp) -> Self {
        (self.timestamps, self.otherwise) = (from, otherwise);
        self
    }

    /// Lets a split become idle that has been at its end for longer than `timeout`.
    ///
    /// # Errors
    /// The timeout is zero.
    pub fn idle_after(mut self, timeout: Duration) -> Result<Self, StrategyError> {
        self.idle_timeout = Some(IdleTimeout::new(timeout)?);
        Ok(self)
    }

    /// Keeps the splits of a group of sources, in this process, within `max_drift` of each other.
    ///
    /// A split without any record holds all others until it has one or is idle: set an idle timeout as well.
    #[must_use]
    pub fn within_drift(mut self, group: impl Into<Arc<str>>, max_drift: Duration) -> Self {
        self.drift = Some(DriftLimit { group: group.into(), max_drift });
        self
    }

    /// Sets the time between two watermarks of a periodic generator.
    ///
    /// # Errors
    /// The interval is zero.
    pub fn every(mut self, interval: Duration) -> Result<Self, StrategyError> {
        if interval.is_zero() {
            return Err(StrategyError::ZeroInterval);
        }
        self.interval = interval;
        Ok(self)
    }
}

impl<T> WatermarkStrategy<T> {
    /// Makes the generator of one split.
    pub fn generator(&self) -> BoxGenerator<T> {
        (self.generator)()
    }

    /// Makes the assigner of one subtask.
    pub fn assigner(&self) -> TimestampAssigner<T> {
        TimestampAssigner::new(self.timestamps.clone(), self.otherwise)
    }

    /// Returns how long a split must be at its end to be idle; `None` means that it never is.
    pub fn idle_timeout(&self) -> Option<IdleTimeout> {
        self.idle_timeout
    }

    /// Returns the group that the source belongs to.
    pub fn drift(&self) -> Option<&DriftLimit> {
        self.drift.as_ref()
    }

    /// Returns the time between two ticks.
    pub fn interval(&self) -> Duration {
        self.interval
    }
}

impl<T> Clone for WatermarkStrategy<T> {
    fn clone(&self) -> Self {
        Self {
            generator: Arc::clone(&self.generator),
            timestamps: self.timestamps.clone(),
            otherwise: self.otherwise,
            idle_timeout: self.idle_timeout,
            drift: self.drift.clone(),
            interval: self.interval,
        }
    }
}

impl<T> fmt::Debug for WatermarkStrategy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatermarkStrategy")
            .field("generator", &self.generator())
            .field("timestamps", &self.timestamps)
            .field("otherwise", &self.otherwise)
            .field("idle_timeout", &self.idle_timeout)
            .field("drift", &self.drift)
            .field("interval", &self.interval)
            .finish()
    }
}
