//! What a merge says about time, in line with the records.

use crate::clock::Timestamp;
use crate::element::{StreamElement, StreamStatus};

/// An element of a stream that tells about its time. [TIM-08] Its place among the records is part of its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeSignal {
    /// No record with this timestamp or an earlier one follows.
    Watermark(Timestamp),
    /// Whether records are to be expected.
    Status(StreamStatus),
}

impl<T> From<TimeSignal> for StreamElement<T> {
    fn from(signal: TimeSignal) -> Self {
        match signal {
            TimeSignal::Watermark(watermark) => StreamElement::Watermark(watermark),
            TimeSignal::Status(status) => StreamElement::Status(status),
        }
    }
}

/// The last word of a merge: what it says next must differ, and its watermark never goes back.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastSaid {
    pub(super) watermark: Timestamp,
    pub(super) status: StreamStatus,
}

impl LastSaid {
    /// Nothing was promised, and records are to be expected: what whoever listens takes for granted.
    pub(super) const NOTHING: Self = Self { watermark: Timestamp::MIN, status: StreamStatus::Active };

    pub(super) fn status(&mut self, status: StreamStatus, signals: &mut Vec<TimeSignal>) {
        if self.status != status {
            self.status = status;
            signals.push(TimeSignal::Status(status));
        }
    }

    /// [TIM-02] One that does not advance is dropped. One of an idle stream would be ignored, so the stream is active
    /// before it.
    pub(super) fn watermark(&mut self, watermark: Timestamp, signals: &mut Vec<TimeSignal>) {
        if watermark > self.watermark {
            self.status(StreamStatus::Active, signals);
            self.watermark = watermark;
            signals.push(TimeSignal::Watermark(watermark));
        }
    }
}
