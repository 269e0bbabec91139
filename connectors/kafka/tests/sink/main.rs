//! The sink against real brokers.

mod coordinator;
mod failures;
mod order;
mod outages;
mod partitions;
mod pressure;
mod records;
mod slots;
mod support;
mod transactions;
