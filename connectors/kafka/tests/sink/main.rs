//! The sink against real brokers.

mod acl;
mod away;
mod coordinator;
mod failures;
mod left_open;
mod left_out;
mod left_over;
mod lost_answers;
mod metrics;
mod order;
mod outages;
mod partitions;
// What only the tests of the protocol's client say is not said here.
#[allow(dead_code)]
#[path = "../protocol/peer.rs"]
mod peer;
mod prepared;
mod pressure;
mod records;
mod slots;
mod stale;
mod start;
mod support;
mod transactions;
mod two_phase;
mod warm;
