//! What the judge of watermarks says.

use std::fmt::{self, Debug, Display, Formatter};

use super::super::listing::{SHOWN, write_rest};

/// What a stream in order consists of: a test that wants to see something happen looks here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Judged {
    /// The number of records, late ones included.
    pub records: u64,
    /// The number of records declared late.
    pub late: u64,
    /// The number of watermarks of the stream.
    pub watermarks: u64,
    /// The stream's last watermark, in milliseconds; `None` if it told none.
    pub last: Option<i64>,
}

/// An event that must not come where it came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation<S> {
    /// How many events came before it.
    pub place: usize,
    /// What is wrong with it.
    pub kind: ViolationKind<S>,
}

/// What can be wrong with an event. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViolationKind<S> {
    /// A record came at or before the stream's watermark, and was not declared late.
    #[error("a record of split {split:?} at {timestamp} came after watermark {watermark}, not declared late")]
    LateUndeclared {
        /// The record's split.
        split: S,
        /// The record's timestamp.
        timestamp: i64,
        /// The stream's watermark.
        watermark: i64,
    },
    /// A record was declared late, and came after the stream's watermark.
    #[error("a record of split {split:?} at {timestamp} was declared late at {}", shown(*watermark))]
    DeclaredButNotLate {
        /// The record's split.
        split: S,
        /// The record's timestamp.
        timestamp: i64,
        /// The stream's watermark; `None` before the first one.
        watermark: Option<i64>,
    },
    /// A record came at or before the watermark of its own split, and was not declared late.
    #[error("a record of split {split:?} at {timestamp} came after its split's watermark {watermark}")]
    BehindItsSplit {
        /// The record's split.
        split: S,
        /// The record's timestamp.
        timestamp: i64,
        /// The split's watermark.
        watermark: i64,
    },
    /// The stream's watermark went back.
    #[error("the watermark went back from {from} to {to}")]
    WentBack {
        /// The highest watermark before.
        from: i64,
        /// The watermark told.
        to: i64,
    },
    /// A split's watermark went back.
    #[error("the watermark of split {split:?} went back from {from} to {to}")]
    SplitWentBack {
        /// The split.
        split: S,
        /// The split's highest watermark before.
        from: i64,
        /// The watermark told.
        to: i64,
    },
    /// The stream's watermark rose above what its splits allow.
    #[error("watermark {watermark} came while the splits allow {}", shown(*allowed))]
    PassedSplits {
        /// The watermark told.
        watermark: i64,
        /// The highest watermark that the splits allow; `None` if they allow none.
        allowed: Option<i64>,
    },
    /// The stream told that it is idle, and a split is active.
    #[error("the stream is idle, and split {active:?} is not")]
    IdleTooSoon {
        /// An active split.
        active: S,
    },
    /// The stream told that it is idle, and had not told the highest watermark of its idle splits.
    #[error("the stream is idle at {}, and its splits have reached {reached}", shown(*watermark))]
    IdleUnflushed {
        /// The stream's watermark; `None` if it told none.
        watermark: Option<i64>,
        /// The highest watermark of the idle splits.
        reached: i64,
    },
}

fn shown(watermark: Option<i64>) -> String {
    watermark.map_or_else(|| "no watermark".to_owned(), |watermark| format!("watermark {watermark}"))
}

/// A stream whose watermarks did not keep their promise. Its `Debug` is its `Display`, which shows the first ten violations.
#[derive(Clone, PartialEq, Eq)]
pub struct Misjudged<S> {
    pub(super) violations: Vec<Violation<S>>,
    pub(super) events: usize,
}

impl<S> Misjudged<S> {
    /// Returns all violations in the order of the events; one event may have several.
    #[must_use]
    pub fn violations(&self) -> &[Violation<S>] {
        &self.violations
    }
}

impl<S: Debug> Display for Misjudged<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} violations in {} events", self.violations.len(), self.events)?;
        for violation in self.violations.iter().take(SHOWN) {
            write!(f, "\n  event {}: {}", violation.place, violation.kind)?;
        }
        write_rest(f, "\n  ", self.violations.len())
    }
}

impl<S: Debug> Debug for Misjudged<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl<S: Debug> std::error::Error for Misjudged<S> {}
