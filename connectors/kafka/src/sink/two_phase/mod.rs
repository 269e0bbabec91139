//! Exactly once by checkpoint: what was pre-committed is committed after a crash.
//!
//! ```text
//!   begin ──▶ a warm slot: fresh epoch        write ──▶ serialise, send
//!   pre_commit ──▶ marker, all reports, Describe: Ongoing, ours, all partitions, time left ──▶ handle into the checkpoint
//!   commit ──▶ EndTxn ≤ 4, alike in normal operation and after a crash, by whoever has the handle
//!
//!   after a crash, once a job:  inspect ──▶ the engine decides over all ──▶ fence what no handle names ──▶ commit
//! ```
//!
//! [`Resolver`] is the half that needs no producer: it asks, commits, aborts and fences by handles alone. A start uses it
//! before there is any producer, because making one initialises its id, which ends what is open under it.

mod mark;
mod resolver;
mod sink;
mod start;

pub use resolver::{ResolveError, Resolver};
pub(in crate::sink) use sink::ByCoordinator;
pub use sink::TransactionalSink;
pub use start::StartError;
