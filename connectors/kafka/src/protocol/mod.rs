//! Kafka's own protocol, for the few requests that decide about transactions and that the client library has no calls for.
//!
//! ```text
//!   Admin ── at a coordinator, at a leader, at every broker ──▶ Brokers ── idle connections by address
//!     describe, list, end, fence,                                  │
//!     open producers, markers, limits                              ▼
//!                                    Connection: one question at a time; size, correlation id, versions
//!                                                                  │
//!                                                      TCP, or TLS with or without a certificate of our own
//! ```
//!
//! It is small, and for this crate's sink and source: no produce, no fetch, no group membership. The codec of the messages is
//! a library; framing, versions, deadlines, coordinators and retries are here.
//!
//! **Questions may be repeated, ends may be doubted.** What only asks is tried again until its deadline, on whichever broker
//! is in charge then. [`Admin::end_transaction`] sends once and says what came of it: if the connection broke behind the
//! request, [`ProtocolError::is_outcome_unknown`] is true, and only a description tells more.
//!
//! **A connection carries one question.** While one waits, its connection belongs to it; dropping the future closes the
//! connection, so no answer is ever taken for another's.

mod admin;
mod api;
mod backoff;
mod brokers;
mod connection;
mod coordinator;
mod error;
mod frame;
mod hostname;
mod metadata;
mod offsets;
mod producers;
mod security;
mod transactions;
mod transport;
mod versions;

pub use admin::Admin;
pub(crate) use backoff::Pauses;
pub use error::{ErrorCode, ProtocolError};
pub use metadata::{BrokerAddress, Cluster};
pub use producers::OpenTransaction;
pub use security::{Security, SecurityError};
pub use transactions::{Initialised, ListedTransaction};
pub use versions::BrokerTooOld;
