#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod blocking;
#[cfg(feature = "sink")]
pub mod sink;
#[cfg(feature = "source")]
pub mod source;

#[cfg(feature = "sink")]
pub use sink::{FileHandle, FileSink, FileSinkConfig, Lines, PlainLines};
#[cfg(feature = "source")]
pub use source::{BatchBounds, LineEnd, LineSource, LineSourceConfig, owner_of};
