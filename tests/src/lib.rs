//! What no single crate can prove: end to end, crash loops, layering. This library is what those tests share.
#![forbid(unsafe_code)]

pub mod bridge;
pub mod calls;
pub mod checkpointed;
pub mod flights;
pub mod loop_length;
pub mod process;
pub mod topic;
pub mod transaction;
pub mod weather;
