//! Time in a job: where the values of [`levada_core::time`] meet its tasks.
//!
//! ```text
//!  source task
//!  ┌───────────────────────────────────────────────────────────────────────────────┐
//!  │ Source ─ batch ─▶ steps ─▶ Timed ─ record, watermark, status, in line ─▶ steps ─│─▶ …
//!  │   │ ▲                        ▲                                                │
//!  │   │ └── ask, pause, resume ──┤                                                │
//!  │   └──── news of splits ──────┤                                                │
//!  │  a tick every interval ──────┘                                                │
//!  └──────────────────────────────│────────────────────────────────────────────────┘
//!                                 ├─▶ TimeStatus, for metrics and people
//!                                 └─▶ DriftGroups, of the process
//! ```

mod drift_groups;
mod event;
#[cfg(test)]
mod histories;
mod keeper;
mod snapshot;
mod source_report;
mod status;
mod ticks;
mod timed;

pub use drift_groups::DriftGroups;
pub use snapshot::{SourceTimes, SplitTimes, StageTimes, TimeSnapshot, TimeSpent};
pub use status::TimeStatus;

pub(crate) use event::{Fed, TimeEvent, Wanted, moved, steer};
pub(crate) use keeper::TimeContext;
pub(crate) use status::StageReport;
pub(crate) use ticks::{Ticks, TimeTerms};
pub(crate) use timed::Timed;
