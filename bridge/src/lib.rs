//! Moves Kafka topics into Postgres tables exactly once.
#![forbid(unsafe_code)]
