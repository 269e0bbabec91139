//! The engine's driver of atomic sinks, against a scripted source and a table in memory.
//!
//! What is proved here is the driver: which rows and positions it commits, drops and reads again. Nothing is said about
//! a real source or a real target. No test waits for time: where time is the subject the clock is tokio's paused one.

mod balance;
mod commit;
mod discard;
mod ending;
mod histories;
mod parallel;
mod scripted;
mod table;
