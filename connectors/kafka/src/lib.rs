#![doc = include_str!("../README.md")]
// `forbid` would also forbid the one exception, `source::events`: `deny` (from the workspace) holds everywhere else.

#[cfg(feature = "sink")]
pub mod sink;
#[cfg(feature = "source")]
pub mod source;

#[cfg(feature = "source")]
pub use source::{
    BatchBounds, ConfigError, Isolation, KafkaRecord, KafkaSource, KafkaSourceConfig, KafkaStream, Otherwise,
    SeekTo, SourceControl, SourceStatus, SplitStanding, StartAt, StopAt, StreamItem, WhenLost, owned_splits,
};
