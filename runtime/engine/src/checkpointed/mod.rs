//! Jobs whose sources and sinks keep their state in checkpoints.
//!
//! ```text
//!            inject ┌───────────── coordinator ─────────────┐ acks, states
//!                   ▼                                       ▲
//!  source task: Input::next ─▶ chain ─▶ Outlet ══ barrier in line ══▶ Inlet ─▶ … ─▶ SinkDriver
//!                   │ snapshot between two records                      │ aligned, then prepared
//!                   └───────────────── ack ─────────────────────────────┴── ack
//! ```

mod async_map;
mod attempt;
mod attend;
mod backlog;
mod call_task;
mod caught;
mod control;
mod deal;
mod entry;
mod exchange;
mod failpoint;
mod flow;
mod for_each;
mod function_input;
mod gather;
mod handle;
mod held;
mod hold;
mod inlet;
mod input;
mod job_state;
mod launch;
mod line;
mod mark;
mod middle_task;
mod outlet;
mod pieces;
mod positions;
mod recovery;
mod relay;
mod restore;
mod restoring;
mod run;
mod segment;
mod shell;
mod side_output;
mod signals;
mod sink_end;
mod sink_part;
mod sink_task;
mod source_end;
mod source_task;
mod tasks;
mod two_phase_part;
mod verdict;
mod write_ahead_part;

#[cfg(feature = "failpoints")]
pub use failpoint::RECOVERY_FAIL_POINTS;
pub use flow::Flow;
pub use handle::{CheckpointedHandle, CheckpointedReport, Drain, TakenSavepoint};
pub use job_state::{CompleteCheckpoint, JobState};
pub use line::{Line, MainLine, SideLine};
pub use run::CheckpointedJob;
pub use side_output::{Branch, Route};
pub use signals::{JobExit, STOP_DEADLINE, run_until_signal};
pub use sink_part::FoundTransaction;
pub use verdict::{InspectedSink, RecoveryError};
