//! Calls to other systems from the middle of a stream: what drives the values of [`levada_core::async_io`].
//!
//! ```text
//!   in line ─▶ Intake: waits for room ─▶ Flight: Operator + the futures of its calls + one timer ─▶ in line
//!                     │ inputs in order                │
//!                     └──────── checkpoint ────────────┘
//! ```
//!
//! In a job it stands behind [`Pipeline::async_map`](crate::Pipeline::async_map) and
//! [`Flow::async_map`](crate::Flow::async_map); without one, [`over`] does the same for the items of any stream, and
//! [`Blocking`] calls a client that blocks on threads of its own.

mod atomic_task;
mod blocking;
mod callable;
mod flight;
mod gathered;
mod intake;
mod over;
mod pipeline;
mod status;
mod watched;

pub use blocking::{Blocking, BlockingSettings};
pub use over::{Over, over, over_many};
pub use pipeline::Enriched;
pub use status::{CallStatus, StageCalls};

pub(crate) use callable::{Many, One};
pub(crate) use gathered::Gathered;
pub(crate) use intake::{HeldElement, InLine, Intake, Tag};
pub(crate) use pipeline::Calls;
pub(crate) use watched::Watch;
