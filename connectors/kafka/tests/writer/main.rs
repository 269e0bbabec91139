//! The transactional writer without an engine, against real brokers.

mod misuse;
mod restarts;
mod rounds;
mod support;
mod takeovers;
