#![doc = include_str!("../README.md")]
// `forbid` would also forbid the one exception, `source::events`: `deny` (from the workspace) holds everywhere else.

#[cfg(feature = "source")]
pub mod source;

#[cfg(feature = "source")]
pub use source::{
    BatchBounds, ConfigError, Isolation, KafkaSource, KafkaSourceConfig, SourceStatus, StartAt, StopAt,
    owned_splits,
};
