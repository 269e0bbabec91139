//! How one life is to end.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How one life is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plan {
    /// The child kills itself when it passes a fail point.
    AtPoint {
        /// The fail point's name.
        point: String,
        /// Which passing it is, counted from 1.
        passing: u32,
    },
    /// The child is killed when a time has passed.
    AtMoment {
        /// The time since its start.
        after: Duration,
    },
}

impl Plan {
    /// Returns the fail point that the child is to die at, if it is one.
    #[must_use]
    pub fn point(&self) -> Option<&str> {
        match self {
            Plan::AtPoint { point, .. } => Some(point),
            Plan::AtMoment { .. } => None,
        }
    }
}

/// Writes `at NAME:PASSING` or `after TIME`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plan::AtPoint { point, passing } => write!(f, "at {point}:{passing}"),
            Plan::AtMoment { after } => write!(f, "after {after:?}"),
        }
    }
}

/// A fail point of the child.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) name: String,
    /// Which passings may be drawn.
    pub(super) passings: RangeInclusive<u32>,
    /// Whether it is passed only after an action of the caller: then it is not drawn, but has its turn in the middle.
    pub(super) needs_action: bool,
}

impl Point {
    /// Returns the passing that comes soonest.
    pub(super) fn first_passing(&self) -> u32 {
        *self.passings.start()
    }
}
