//! Throughput against the physical limit; one program a benchmark.
#![forbid(unsafe_code)]
