//! Crash loops: a child process is killed (`kill -9`) again and again, and an oracle tells whether anything was lost or
//! doubled.
//!
//! ```text
//!   seed ──▶ schedule ──▶ plan ──▶ life: start ─▶ run ─▶ kill ──▶ outcome ──▶ oracle of the caller ─┐
//!              ▲                    at the n-th passing of a fail point, by the child itself;       │
//!              │                    or at a random moment, by us                                    │
//!              └────────────────────────── until the time is over and nobody is owed ◀──────────────┘
//! ```
//!
//! At a *fail point* the child kills itself, because nobody else can be as exact: it must call `obey`, which is there
//! with the feature `failpoints`. At a *random moment* any child can be killed.
//!
//! `schedule.rs` and `choice.rs` decide and are pure; `life.rs` and `cycle.rs` do.

mod builder;
mod choice;
mod cycle;
mod life;
#[cfg(feature = "failpoints")]
mod obey;
mod outcome;
mod place;
mod plan;
mod report;
mod schedule;
mod seed;

pub use builder::{CrashLoop, Verdict};
pub use life::Life;
#[cfg(feature = "failpoints")]
pub use obey::{Obedience, obey};
pub use outcome::{End, Outcome};
pub use plan::Plan;
pub use report::{PointReport, Report};
pub use seed::seed;
