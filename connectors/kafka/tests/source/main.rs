//! The source against a real broker.

mod bounded;
mod budget;
mod errors;
mod open;
mod outages;
mod positions;
mod records;
mod support;
