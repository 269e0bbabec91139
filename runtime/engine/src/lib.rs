//! A small runtime that drives a source into a sink inside one process.
//!
//! It is *not* a cluster engine: no joins, windows or shuffles across machines. What it does is keep one promise: a
//! record that was read is written, counted as left out, or the job stops and says where.
//!
//! ```text
//!  one subtask
//!  ┌──────────── reader task ────────────┐  bounded    ┌──────────── sink task ────────────┐
//!  │ Source::poll ─▶ steps of user code  │─ channel ──▶│ AtomicSink::write … commit        │
//!  │      ▲ add(positions)               │  in order   │      rows and positions together  │
//!  └──────┼──────────────────────────────┘             └──────┬────────────────────────────┘
//!         └──────────────── claimed positions ◀───────────────┘
//! ```
//!
//! The reader offers a [`CommitPoint`](levada_core::CommitPoint) behind every batch; the sink keeps the newest and
//! commits at it when rows, bytes, age or a stop say so. Decoding the next batch overlaps writing the one before.
//!
//! Sinks whose exactness rests on checkpoints, and not on a target that stores positions, have a [`driver`] each.
//! Jobs with checkpoints keep them in a [`store`].
#![forbid(unsafe_code)]

mod atomic;
mod balance;
pub mod checkpoint;
mod checkpointed;
mod closing;
pub mod driver;
mod error;
mod failpoint;
mod job;
mod map;
mod message;
mod plan;
mod policy;
mod progress;
mod reader;
pub mod store;
mod time;

pub use balance::{Balance, Unbalanced};
#[cfg(feature = "failpoints")]
pub use checkpointed::RECOVERY_FAIL_POINTS;
pub use checkpointed::{
    Branch, CheckpointedHandle, CheckpointedJob, CheckpointedReport, CompleteCheckpoint, Drain, Flow,
    FoundTransaction, InspectedSink, JobExit, JobState, Line, MainLine, RecoveryError, Route, STOP_DEADLINE,
    SideLine, TakenSavepoint, run_until_signal,
};
pub use error::JobError;
pub use job::{Job, JobHandle, Pipeline, Report, RunnableJob};
pub use map::{FlatMap, Input, Outputs};
pub use plan::{ShapeError, Stage, StageKind, check_shape};
pub use policy::CommitPolicy;
pub use progress::Progress;
pub use time::{DriftGroups, SourceTimes, SplitTimes, StageTimes, TimeSnapshot, TimeSpent, TimeStatus};
