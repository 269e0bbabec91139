//! The sink against real brokers.

mod coordinator;
mod failures;
mod left_over;
mod lost_answers;
mod order;
mod outages;
mod partitions;
mod prepared;
mod pressure;
mod records;
mod slots;
mod stale;
mod support;
mod transactions;
