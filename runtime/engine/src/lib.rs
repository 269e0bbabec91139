//! A small runtime that drives a source into a sink inside one process.
//!
//! It is *not* a cluster engine: no joins, windows or shuffles across machines. What it does is keep one promise: a
//! record that was read is written, counted as left out, or the job stops and says where.
//!
//! ```
//! use levada_core::template::{Emit, Next, SourceFunction};
//! use levada_core::{SourceContext, SourceError, State};
//! use levada_engine::{Job, store::Store};
//!
//! #[derive(Debug)]
//! struct OneTwoThree;
//!
//! impl SourceFunction for OneTwoThree {
//!     type Item = u64;
//!
//!     async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> {
//!         Ok(())
//!     }
//!
//!     async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
//!         (1..=3).for_each(|number| out.record(number));
//!         Ok(Next::End)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let job = Job::new("squares")
//!     .source_function("numbers", |_subtask| OneTwoThree)
//!     .map("square", |number| Ok(number.item() * number.item()))
//!     .for_each("print", |record, _| {
//!         println!("{}", record.item);
//!         Ok(())
//!     });
//! let report = job.run(Store::open("memory:").await?).await?;
//! assert_eq!(report.sinks["print"].written, 3);
//! # Ok(()) }
//! ```
//!
//! # Two kinds of jobs
//!
//! An *atomic* job ends with one [`AtomicSink`](levada_core::AtomicSink), which stores the source's positions with the
//! rows, and needs no checkpoint store ([`Job::source`], [`Pipeline::atomic_sink`]):
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
//! A *job with checkpoints* ([`Job::source_function`], or [`Pipeline::checkpointed`] behind a source) may have exchanges by
//! key, side outputs and several sinks, each of one of the [templates](levada_core::template). State, positions and what
//! sinks hold back are in the checkpoints of one [`store`], from which the job goes on after a failure.
//!
//! # Where to look
//!
//! * [`Job`], [`Pipeline`] and [`Flow`] build; [`JobHandle`] and [`CheckpointedHandle`] are the running job, and
//!   [`run_until_signal`] ends it on SIGTERM.
//! * [`async_io`]: calls to other systems, in a job or over any stream.
//! * [`store`]: where checkpoints are, and why two processes cannot both go on from one.
//! * [`checkpoint`]: the coordinator and the alignment of barriers, as machines without I/O.
//! * [`driver`]: what calls a sink of each template, and when; for engines and tests of one's own.
#![forbid(unsafe_code)]

pub mod async_io;
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
pub use map::{FlatMap, Input, Outputs, Skipped, Skipping};
pub use plan::{ShapeError, Stage, StageKind, check_shape};
pub use policy::CommitPolicy;
pub use progress::Progress;
pub use time::{DriftGroups, SourceTimes, SplitTimes, StageTimes, TimeSnapshot, TimeSpent, TimeStatus};
