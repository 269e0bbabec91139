#![doc = include_str!("../README.md")]
// `forbid` would also forbid the one exception, `source::events`: `deny` (from the workspace) holds everywhere else.

#[cfg(feature = "protocol")]
mod failpoint;
// For this crate's sink and source, and the tools around them; no promise to others.
#[cfg(feature = "protocol")]
#[doc(hidden)]
pub mod protocol;
#[cfg(feature = "sink")]
pub mod sink;
#[cfg(feature = "source")]
pub mod source;

#[cfg(feature = "source")]
pub use source::{
    BatchBounds, BatchWaits, ConfigError, Isolation, KafkaRecord, KafkaSource, KafkaSourceConfig,
    KafkaStream, Otherwise, SeekTo, SourceControl, SourceStatus, SplitStanding, StartAt, StopAt, StreamItem,
    WhenLost, owned_splits,
};
