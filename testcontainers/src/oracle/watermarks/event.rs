//! What a stream shows of its records, watermarks and splits.

/// Something that was seen of a stream, in the order in which it was seen. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<S> {
    /// A record left the stream.
    Record {
        /// The split that it was read from.
        split: S,
        /// Its timestamp.
        timestamp: i64,
        /// Whether the stream declared it late, or the test's author knows that it is.
        late: bool,
    },
    /// The stream told a watermark: no more records at or before it.
    Watermark(i64),
    /// The stream told that it is idle.
    Idle,
    /// A split was added; until it has a watermark, it holds the stream's at the minimum.
    SplitAdded(S),
    /// A split reached a watermark of its own, which makes it active too.
    SplitWatermark {
        /// The split.
        split: S,
        /// Its watermark.
        watermark: i64,
    },
    /// A split became idle.
    SplitIdle(S),
    /// A split became active again. A record alone says no such thing: records may flow while a split is idle.
    SplitActive(S),
    /// A split came to its end: there is nothing more to wait for.
    SplitFinished(S),
    /// A split was taken away; it counts no more, not even as finished.
    SplitRemoved(S),
}
