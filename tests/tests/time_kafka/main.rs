//! Time in jobs that read a real Kafka: what users see of partitions that are quiet, blocked, ahead, or whose broker is away.
//!
//! The clock by which splits become idle is the test's: it moves when a test moves it, so "for longer than the timeout", and
//! "for an hour", are exact and take no time.

mod clock;
mod drift;
mod idle;
mod job;
mod lines;
mod look;
mod outage;
mod scene;
mod subtasks;
mod transaction;
mod watched;
