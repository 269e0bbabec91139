//! Throughput against the physical limit; one program a benchmark.
//!
//! Each variant runs in a process of its own, so that processor time and peak memory are its own. Runs alternate, the
//! median counts, and only ratios within one call mean anything.
#![forbid(unsafe_code)]

pub mod load;
pub mod measure;
