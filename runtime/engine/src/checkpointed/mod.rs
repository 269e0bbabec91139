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
mod exchange;
mod flow;
mod inlet;
mod input;
mod launch;
mod line;
mod mark;
mod middle_task;
mod outlet;
mod positions;
mod relay;
mod restore;
mod run;
mod segment;
mod shell;
mod side_output;
mod sink_end;
mod sink_task;
mod source_end;
mod source_task;

pub use flow::Flow;
pub use line::{Line, MainLine, SideLine};
pub use run::{CheckpointedHandle, CheckpointedJob, CheckpointedReport};
pub use side_output::{Branch, Route};
