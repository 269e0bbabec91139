//! Apache Kafka: one or three KRaft brokers, controllers included.

mod broker;
mod builder;
#[cfg(feature = "docker")]
mod contained;
mod faults;
mod format;
mod handle;
mod jvm;
mod listeners;
mod local;
mod node;
mod properties;
mod security;
mod shared;
mod start;
mod tool;

pub use broker::Broker;
pub use builder::KafkaBuilder;
pub use handle::Kafka;
pub use listeners::{Mechanism, Security};
pub use shared::SharedKafka;

pub(crate) use security::scram_records;
pub(crate) use shared::start_to_share;
pub(crate) use tool::tool;
