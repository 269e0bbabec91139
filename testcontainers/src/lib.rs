#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cache;
#[cfg(feature = "docker")]
#[allow(dead_code, unused_imports, reason = "the handles take it up with the choice of a provider")]
mod docker;
mod error;
mod exported;
mod kafka;
mod logs;
mod names;
mod postgres;
mod process;
mod programs;
mod wait;

pub mod run;

pub use error::Error;
pub use kafka::{Kafka, KafkaBuilder, SharedKafka};
pub use names::unique_name;
pub use postgres::{Database, Postgres, PostgresBuilder, SharedPostgres};
pub use wait::wait_until;
