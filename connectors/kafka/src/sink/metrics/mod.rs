//! What can be seen of a transactional sink from outside, with the bridge or without it.
//!
//! ```text
//!   begin ──▶ open ── pre-commit ──▶ prepared ── commit ──▶ committed     each with its age, and what is left of its timeout
//!              └── abort ──▶ aborted ◀── abort ──┘  └── found gone ──▶ lost: must stay at zero
//! ```
//!
//! All sinks of a job that were given the same [`SinkMetrics`] count together. Names for a monitoring system are in
//! [`names`].

mod account;
mod distribution;
pub mod names;
mod snapshot;

pub use account::SinkMetrics;
pub use distribution::Distribution;
pub use snapshot::{Phase, TransactionMetrics, TransactionStanding};
