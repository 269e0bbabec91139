//! Contracts for authors of sources and sinks whose state is in checkpoints. The engine has a driver for each.
//!
//! | template | the author writes | what it gives |
//! |---|---|---|
//! | [`SourceFunction`] | `next`, and `snapshot` if it can be reset | records again from the last checkpoint on |
//! | [`IdempotentSink`] | `upsert`, `flush` | at least once; converges, because a replay writes the same |
//! | [`WriteAheadSink`] | `send(segment)`, with a [`CheckpointCommitter`] | at least once; exactly once when the marker is committed with the data |
//! | [`TwoPhaseCommitSink`] | `begin`, `write`, `pre_commit`, `commit`, `abort` over a handle that can be stored | exactly once |

mod decide;
mod function;
mod idempotent;
mod two_phase;
mod write_ahead;

pub use decide::{Decision, decide};
pub use function::{Emit, EmitSplit, Emitted, Next, SourceFunction};
pub use idempotent::IdempotentSink;
pub use two_phase::{Fate, TransactionName, TwoPhaseCommitSink};
pub use write_ahead::{CheckpointCommitter, Marker, Segment, WriteAheadSink};

use crate::clock::Timestamp;

/// What a sink is told with each write. The time of a record is the record's own: [`Record::timestamp`](crate::Record::timestamp).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteContext {
    /// The wall-clock time of the write.
    pub processing_time: Timestamp,
    /// No record with an earlier timestamp or this one is expected any more; [`Timestamp::MIN`] until there are watermarks.
    pub watermark: Timestamp,
}
