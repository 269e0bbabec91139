//! The `levada` command: moves Kafka topics into Postgres tables exactly once.
//!
//! It is *not* a stream processor: no joins, windows or shuffles. It reads a pipeline file, says what it guarantees and
//! what that rests on, checks topics and table when it opens them, and moves records until it is stopped or the work is
//! done.
//!
//! ```text
//!   pipeline file ──▶ config (every error at once) ──▶ assemble ──▶ levada-engine job
//!                                                          │             │ progress
//!                                                     start-up block   bar, log lines, metrics, balance, exit code
//! ```
#![forbid(unsafe_code)]

pub mod assemble;
mod checkpoint;
pub mod cli;
pub mod config;
pub mod decode;
pub mod enrich;
pub mod event_time;
pub mod exit;
mod http;
mod logs;
pub mod observe;
mod run;
mod startup;
mod transactions;

/// Every fail point on the way of a record, in the order in which a claim and a commit pass them.
#[cfg(feature = "failpoints")]
pub use levada_postgres::sink::FAIL_POINTS;
