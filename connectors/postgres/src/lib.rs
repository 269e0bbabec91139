#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod quote;
#[cfg(feature = "sink")]
pub mod sink;

#[cfg(feature = "sink")]
pub use sink::{
    ColumnOptions, EpochUnit, Health, PostgresSink, PostgresSinkConfig, Stats, Tombstone, WriteMode,
};
