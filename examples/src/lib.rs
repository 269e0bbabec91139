//! What the programs of this folder share: numbers to write, a peer to write to, and real flights as Kafka records.
#![forbid(unsafe_code)]

mod flights;
mod numbers;
mod peer;

pub use flights::{FlightRecord, flights};
pub use numbers::Numbers;
pub use peer::play_peer;
