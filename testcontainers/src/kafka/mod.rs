//! Apache Kafka: one KRaft broker, controller included, as a local process.

mod builder;
mod faults;
mod format;
mod handle;
mod jvm;
mod properties;
mod shared;
mod start;
mod tool;

pub use builder::KafkaBuilder;
pub use handle::Kafka;
pub use shared::SharedKafka;

pub(crate) use shared::start_to_share;
pub(crate) use tool::tool;
