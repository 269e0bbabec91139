#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod atomic;
mod failure;
mod fuse;
mod history;
pub mod idempotent;
mod job;
mod ledger;
mod numbers;
mod stage;
pub mod two_phase;
mod verify;
pub mod write_ahead;

pub use atomic::AtomicTarget;
pub use failure::{Failure, Finding};
pub use history::Histories;
pub use idempotent::IdempotentTarget;
pub use two_phase::TwoPhaseTarget;
pub use verify::verify;
pub use write_ahead::WriteAheadTarget;
