//! Parts the elements of a stream by what may be done with them.

use levada_core::{Barrier, Batch, Refused, StreamElement, StreamStatus, Timestamp};

/// What stands between records and concerns everybody behind: it goes down every way that records may go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    Watermark(Timestamp),
    Status(StreamStatus),
    Barrier(Barrier),
    End,
}

impl Mark {
    pub(crate) fn element<T>(self) -> StreamElement<T> {
        match self {
            Mark::Watermark(watermark) => StreamElement::Watermark(watermark),
            Mark::Status(status) => StreamElement::Status(status),
            Mark::Barrier(barrier) => StreamElement::Barrier(barrier),
            Mark::End => StreamElement::End,
        }
    }
}

/// An element, by what may be done with it.
#[derive(Debug)]
pub(crate) enum Sorted<T> {
    /// Records: each goes one way, or is copied.
    Batch(Batch<T>),
    /// Goes exactly one way.
    Refused(Refused),
    /// Goes every way.
    Mark(Mark),
    /// An offer to commit is an atomic job's: it has no business in one with checkpoints.
    Foreign,
}

impl<T> From<StreamElement<T>> for Sorted<T> {
    fn from(element: StreamElement<T>) -> Self {
        match element {
            StreamElement::Batch(batch) => Sorted::Batch(batch),
            StreamElement::Refused(refused) => Sorted::Refused(refused),
            StreamElement::Watermark(watermark) => Sorted::Mark(Mark::Watermark(watermark)),
            StreamElement::Status(status) => Sorted::Mark(Mark::Status(status)),
            StreamElement::Barrier(barrier) => Sorted::Mark(Mark::Barrier(barrier)),
            StreamElement::End => Sorted::Mark(Mark::End),
            _ => Sorted::Foreign,
        }
    }
}
