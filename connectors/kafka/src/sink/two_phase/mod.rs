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
//! Behind a commit, leaders are asked whether readers see it, in the background: Kafka leaves out the marker of a partition that
//! has no leader at that moment (`see`).
//!
//! Rights: WRITE on transactional ids and READ on groups with the prefix, WRITE and READ on the topics; ALTER on the cluster where a
//! marker is missing. Topics that are named in the configuration are looked into at each start.
//!
//! [`Resolver`] is the half that needs no producer: it asks, commits, aborts and fences by handles alone. A start uses it
//! before there is any producer, because making one initialises its id, which ends what is open under it.

mod error;
mod identity;
mod left_over;
mod mark;
mod resolver;
mod see;
mod sink;
mod start;
mod watch;

pub use error::ResolveError;
pub(in crate::sink) use identity::ByCoordinator;
pub use resolver::Resolver;
pub use sink::TransactionalSink;
pub use start::StartError;
