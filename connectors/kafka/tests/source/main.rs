//! The source against a real broker.

mod alone;
mod bounded;
mod budget;
mod control;
mod errors;
mod idleness;
mod open;
mod outages;
mod positions;
mod records;
mod standing;
mod starts;
mod status;
mod stops;
mod support;
