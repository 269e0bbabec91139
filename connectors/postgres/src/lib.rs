#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "idempotent")]
pub mod idempotent;
#[cfg(feature = "lookup")]
pub mod lookup;
pub mod quote;
#[cfg(feature = "sink")]
pub mod sink;
#[cfg(feature = "write-ahead")]
pub mod write_ahead;

#[cfg(feature = "idempotent")]
pub use idempotent::PostgresUpsert;
#[cfg(feature = "lookup")]
pub use lookup::{PostgresLookup, PostgresLookupConfig};
#[cfg(feature = "sink")]
pub use sink::{
    ColumnOptions, EpochUnit, Health, PostgresSink, PostgresSinkConfig, Stats, Tombstone, WriteMode,
};
#[cfg(feature = "write-ahead")]
pub use write_ahead::{MarkerTable, PostgresCommitter, PostgresWriteAhead};
