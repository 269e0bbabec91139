//! Kafka's protocol, for the few requests that librdkafka has no call for.
//!
//! This is *not* a client for records. It asks coordinators and leaders about transactions and ends them, which is what a
//! commit after a crash needs: librdkafka cannot take up a transaction that another process has written.
//!
//! ```text
//!  TransactionAdmin ─▶ verb: describe, list, end, fence …      what is asked, what the answer means
//!                        │ retry: pauses until the deadline
//!                        ▼
//!                      client ── known: brokers, coordinators   whom to ask
//!                        │ pool: idle connections
//!                        ▼
//!                      connect: TCP ─▶ TLS ─▶ versions ─▶ authenticate ─▶ connection
//!                                                                          │ frame, layout, codec
//! ```
//!
//! * [`admin`](TransactionAdmin): what the sink sees. One file per verb; `check` and `settings` for the start.
//! * `api`: which versions of which requests are spoken, and what for.
//! * `layout`: why no answer can ask for memory that it does not fill.
//! * The codec is the `kafka-protocol` crate.
//!
//! # Lost answers
//! What only reads is asked again. What changes something is not: its answer may be lost behind a request that was carried
//! out, and only the caller knows what to do about that ([`ProtocolError::OutcomeUnknown`]).

mod address;
mod admin;
mod api;
mod authenticate;
mod check;
mod client;
mod cluster;
mod code;
#[cfg(feature = "sink")]
mod complete;
mod config;
mod connect;
mod connection;
mod describe;
mod end;
mod error;
mod fence;
mod find_coordinator;
mod frame;
mod known;
mod layout;
mod list;
mod mark;
mod offsets;
mod pool;
mod producers;
mod resolve;
mod retry;
mod settings;
mod tls;
mod transaction;
mod versions;

#[cfg(test)]
mod layouts;

pub use address::Address;
pub use admin::TransactionAdmin;
pub use api::VersionSpan;
pub use client::ProtocolClient;
pub use cluster::{Cluster, Leader, Topic, TopicId};
pub use code::ErrorCode;
#[cfg(feature = "sink")]
pub(crate) use complete::CommitMarker;
pub use config::{ConfigError, ProtocolConfig};
pub use error::ProtocolError;
pub use offsets::Committed;
pub use producers::ActiveProducer;
pub(crate) use producers::Look;
pub use settings::Settings;
pub use transaction::{Described, Ending, Identity, Listed, State, TransactionKey};
