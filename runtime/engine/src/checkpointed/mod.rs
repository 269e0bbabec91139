//! Jobs whose sources and sinks keep their state in checkpoints.
//!
//! ```text
//!            inject ┌───────────── coordinator ─────────────┐ acks, states
//!                   ▼                                       ▲
//!  source task: Input::next ─▶ chain ─▶ Outlet ══ barrier in line ══▶ Inlet ─▶ … ─▶ SinkDriver
//!                   │ snapshot between two records                      │ aligned, then prepared
//!                   └───────────────── ack ─────────────────────────────┴── ack
//! ```

mod control;
mod flow;
mod for_each;
mod inlet;
mod input;
mod launch;
mod middle_task;
mod outlet;
mod positions;
mod restore;
mod run;
mod shell;
mod sink_task;
mod source_task;

pub use flow::Flow;
pub use run::{CheckpointedHandle, CheckpointedJob, CheckpointedReport};
