//! What no single crate can prove: end to end, crash loops, layering.
#![forbid(unsafe_code)]
