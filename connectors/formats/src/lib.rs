#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "json")]
pub mod json;
