//! One container of ours on the machine's own container engine: what `process` is for a process of the machine.
//!
//! ```text
//!  test thread ──future──▶ runtime of our own ──socket──▶ engine ──▶ container, in the machine's network
//!       ▲                        │ follows the log
//!       └── answer ──────────────┘──▶ log file, read by the same code as a process's
//!
//!  reaper: told the container's name before the engine is; removes it when the test process is gone
//! ```
//!
//! The client is asynchronous and a caller may be a test inside a runtime of its own, which must not be entered twice: so
//! futures run on our runtime, and the calling thread waits for the answer as it would for a process.

mod container;
mod engine;
mod faults;
mod follower;
mod images;
mod look;
mod server;
mod spec;
#[cfg(test)]
mod tests;

use container::Container;

pub(crate) use images::Image;
pub(crate) use server::ContainerServer;
pub(crate) use spec::{File, Ready, Spec};
