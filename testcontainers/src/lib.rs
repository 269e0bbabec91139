// The examples are tests: the first one is a stranger's, and runs. [TST-09]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cache;
mod cut;
#[cfg(feature = "docker")]
mod docker;
mod error;
mod exported;
mod kafka;
mod logs;
mod names;
mod pgbouncer;
mod postgres;
mod process;
mod programs;
mod provider;
mod server;
mod tls;
mod variable;
mod wait;

pub mod crash;
pub mod oracle;
pub mod run;

pub use cut::{Action, Cut, Direction, Rule, Trigger};
pub use error::Error;
pub use kafka::{Broker, Kafka, KafkaBuilder, Mechanism, Security, SharedKafka};
pub use names::unique_name;
pub use pgbouncer::{PgBouncer, PgBouncerBuilder, PoolMode};
pub use postgres::{Database, Postgres, PostgresBuilder, SharedPostgres};
pub use provider::Provider;
pub use tls::ClientFiles;
pub use wait::wait_until;
