//! Checkpoints, as decisions without I/O: when one begins, what aligns its barriers, when it is complete, who is told, and
//! what happens after a failure.
//!
//! ```text
//!              ┌──────────────── Coordinator ────────────────┐
//!    Tick ────▶│ trigger ─▶ all acked ─▶ entry ─▶ complete   │──▶ Inject, WriteManifest, NotifyComplete, NotifyAborted,
//!   Acked ────▶│      └─ declined, expired, failed ─▶ aborted│    DiscardParts, FailJob, …
//!              └─────────────────────────────────────────────┘
//!   barriers ─▶ Alignment ─▶ hold a channel, release it, snapshot here        (one for each task with several inputs)
//!   a failure ▶ Restarts  ─▶ restart after a delay, or give up
//! ```
//!
//! Each takes what happened, and the time as a value, and returns what is to be done, in order. Whoever runs them does
//! exactly that and decides nothing.

mod align;
mod coordinator;
mod protocol;
mod restart;

pub use align::{Alignment, Step};
pub use coordinator::Coordinator;
pub use protocol::{
    AbortReason, Action, CheckpointKind, CheckpointSettings, Command, DeclineReason, FailReason, Input,
    RequestId, SubtaskId,
};
pub use restart::{Backoff, Restart, RestartStrategy, Restarts};
