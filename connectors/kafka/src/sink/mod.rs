//! Writing to Kafka.

pub mod metrics;
pub mod producing;
pub mod recovery;
pub mod slot;
pub mod two_phase;
pub mod writer;

#[cfg(feature = "failpoints")]
pub use crate::failpoint::FAIL_POINTS;
