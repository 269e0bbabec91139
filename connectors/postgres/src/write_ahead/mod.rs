//! A write-ahead sink of changes, and markers for anybody's: a segment and its marker become visible together.
//!
//! ```text
//!            complete(n)              send(segment)                                        one transaction, pipelined
//!  driver ──▶ is_committed? ── no ──▶ encode ──▶ begin · fence as raised? · marker, or fail · data · commit
//!                  │                                    │                        │                     │
//!                  └ yes: dropped                       no: fenced          there: sent before    no answer: an error,
//!                                                                                                the next notification
//!                                                                                                asks for the marker
//!  open ──▶ fence(first) ──▶ waits for transactions of earlier openings; from then on theirs fail
//! ```
//!
//! Three things keep a segment from being written twice. The driver *asks* for the marker before it sends. If it asks too
//! early, while an attempt whose answer was lost is still being carried out, the marker's *primary key* makes the second
//! one wait, and fail if the first succeeds. And a process that was stopped for so long that its markers were forgotten
//! finds the *fence* raised by the opening that took over.

mod committer;
mod failpoint;
mod marker;
mod sink;
mod sql;

pub use committer::PostgresCommitter;
#[cfg(feature = "failpoints")]
pub use failpoint::FAIL_POINTS;
pub use marker::{MarkerTable, ddl};
pub use sink::{PostgresWriteAhead, SegmentRecord};
