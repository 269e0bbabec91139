//! Clients of the servers, as a stranger would use them.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod kafka;
pub mod postgres;
