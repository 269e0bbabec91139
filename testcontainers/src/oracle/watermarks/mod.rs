//! Whether watermarks kept their promise: no more records at or before them.
//!
//! What is judged, and against what:
//!
//! ```text
//! split 0: records, watermarks, idle, finished ──┐
//! split 1: records, watermarks, idle, finished ──┼──> the output's watermarks: never regress,
//! split 2: ...                                   ┘    never pass an undeclared record (always judged),
//!                                                     never pass the splits (if asked)
//! ```

mod event;
mod judge;
#[cfg(test)]
mod tests;
mod violation;

pub use event::Event;
pub use judge::{WatermarkJudge, watermarks};
pub use violation::{Judged, Misjudged, Violation, ViolationKind};
