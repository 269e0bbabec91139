//! The raw client, against real brokers and against peers that are none.

mod cluster;
mod hostile;
mod outages;
mod partitions;
mod peer;
mod scripted;
mod security;
mod support;
mod transactions;
