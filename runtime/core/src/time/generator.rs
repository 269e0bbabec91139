//! Watermarks out of the timestamps of records.

use std::fmt;
use std::time::Duration;

use crate::clock::Timestamp;

/// Follows the records of one split and says which timestamps will not come any more.
///
/// A generator may return anything: a watermark that does not advance is dropped. It is not asked while its split is idle.
pub trait WatermarkGenerator<T>: Send + fmt::Debug {
    /// Sees a record after it was emitted. [TIM-02] What it returns goes into the stream behind that record.
    fn on_event(&mut self, item: &T, timestamp: Timestamp) -> Option<Timestamp> {
        let _ = (item, timestamp);
        None
    }

    /// Is asked once in every emission interval.
    fn on_periodic(&mut self, now: Timestamp) -> Option<Timestamp> {
        let _ = now;
        None
    }
}

/// Any generator.
pub type BoxGenerator<T> = Box<dyn WatermarkGenerator<T>>;

impl<T> WatermarkGenerator<T> for BoxGenerator<T> {
    fn on_event(&mut self, item: &T, timestamp: Timestamp) -> Option<Timestamp> {
        (**self).on_event(item, timestamp)
    }

    fn on_periodic(&mut self, now: Timestamp) -> Option<Timestamp> {
        (**self).on_periodic(now)
    }
}

/// [TIM-01] Trusts that no record is older than the newest one by more than a bound.
///
/// The watermark is the newest timestamp − bound − 1 ms, because a record exactly at the bound may still come.
#[derive(Debug, Clone)]
pub struct BoundedOutOfOrderness {
    bound: Duration,
    newest: Option<Timestamp>,
}

impl BoundedOutOfOrderness {
    /// Allows records to be late by `bound`; part of a millisecond counts as a whole one.
    pub fn new(bound: Duration) -> Self {
        Self { bound, newest: None }
    }

    /// Trusts that timestamps never go back; equal ones may follow each other.
    pub fn monotonic() -> Self {
        Self::new(Duration::ZERO)
    }

    /// Returns the watermark; [`Timestamp::MIN`] before any record.
    pub fn watermark(&self) -> Timestamp {
        let last_closed =
            |newest: Timestamp| newest.saturating_sub(self.bound).saturating_sub(Duration::from_millis(1));
        self.newest.map_or(Timestamp::MIN, last_closed)
    }
}

impl<T> WatermarkGenerator<T> for BoundedOutOfOrderness {
    fn on_event(&mut self, _: &T, timestamp: Timestamp) -> Option<Timestamp> {
        self.newest = self.newest.max(Some(timestamp));
        None
    }

    fn on_periodic(&mut self, _: Timestamp) -> Option<Timestamp> {
        Some(self.watermark())
    }
}

/// Promises nothing. [TIM-04] At the end of all input the maximum comes nevertheless, from the merge.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWatermarks;

impl<T> WatermarkGenerator<T> for NoWatermarks {}

/// Asks a function about every record; what it returns is emitted at once, behind the record.
#[derive(Clone)]
pub struct Punctuated<F> {
    watermark_of: F,
}

impl<F> Punctuated<F> {
    /// Asks `watermark_of`, which sees a record and its timestamp.
    pub fn new(watermark_of: F) -> Self {
        Self { watermark_of }
    }
}

impl<F> fmt::Debug for Punctuated<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Punctuated")
    }
}

impl<T, F> WatermarkGenerator<T> for Punctuated<F>
where
    F: FnMut(&T, Timestamp) -> Option<Timestamp> + Send,
{
    fn on_event(&mut self, item: &T, timestamp: Timestamp) -> Option<Timestamp> {
        (self.watermark_of)(item, timestamp)
    }
}
