//! Real Kafka and Postgres for anybody's tests, with faults.
#![forbid(unsafe_code)]
