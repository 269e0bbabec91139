//! A small runtime that drives sources into sinks with exactly-once semantics inside one process.
#![forbid(unsafe_code)]
