//! A TCP proxy between a client and its server, with faults at a precise byte.
//!
//! ```text
//!            ┌───────────────────────── one direction of one connection ─────────────────────────┐
//!  source ──▶│ Line: what is under way, each ──▶ Gate: the rules; what may ──▶ outgoing, paced by │──▶ target
//!            │ chunk with the time it is due     be a pattern is withheld      the throttle       │
//!            └────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `Line`, `Gate`, `Watch`, `Matcher`, `Pace` and `Flow` are values without I/O that are given the time; `Connection`
//! moves bytes between them and two sockets. One thread, the `Relay`, owns all sockets and blocks in `poll`, so that a
//! reset is one call with nobody else in a read of the same socket, and so that a fault ordered by a test falls between
//! two steps of the traffic and never into one. A control method returns when the relay has carried it out.

mod connection;
mod dial;
mod farewell;
mod flow;
mod gate;
mod handle;
mod line;
mod pace;
mod pattern;
mod relay;
mod rule;
mod send_queues;
mod tally;
mod url;
mod watch;

pub use handle::Cut;
pub use rule::{Action, Direction, Rule, Trigger};
