//! Producing: every record handed to the client is accounted for.
//!
//! ```text
//!   Serialise ──▶ Outgoing ──▶ Producer::send ── room, in bytes ──▶ librdkafka ──▶ brokers
//!                                  │ sent + 1                          │
//!                                Ledger ◀── acked + 1 or failed + 1 ── delivery reports, on the client's own thread
//!                                  └─▶ settled: sent = acked + failed    failed: at the next write, at a flush, while idle
//! ```
//!
//! The safe crate's flush polls in steps of 100 ms, and says nothing about failed messages. Here a thread of the
//! client's own polls all the time, each report is counted as it comes, and whoever waits is woken by the last one.
//!
//! Calls of the client that can block (making it, initialising, aborting, destroying it) run on threads of their own, with a
//! deadline outside; see [`Producer::close`] for one that hangs.

mod at_least_once;
mod client;
mod config;
mod error;
mod ledger;
mod message;
mod origins;
mod producer;
mod reports;
mod serialise;
mod thread;
mod warm;

pub use at_least_once::AtLeastOnceSink;
pub use config::{Guarantee, KafkaSinkConfig, Partitioner, TransactionTimeout};
pub use error::{ClientError, ProduceError, SinkConfigError, Undelivered};
pub use ledger::Delivered;
pub use message::{Message, Outgoing};
pub use producer::Producer;
pub use serialise::{AsRead, InBatch, Serialise};
