//! Bytes to rows: exact, borrowed decoding of JSON.
#![forbid(unsafe_code)]
