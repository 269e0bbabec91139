//! Writing to Kafka.

pub mod producing;
pub mod slot;
