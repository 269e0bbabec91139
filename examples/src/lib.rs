//! What the programs of this folder share: numbers to write, a peer to write to, real flights as Kafka records, and a way into Kafka.
#![forbid(unsafe_code)]

mod flights;
mod numbers;
mod peer;
#[cfg(feature = "kafka")]
mod replay;

pub use flights::{FlightRecord, flights};
pub use numbers::Numbers;
pub use peer::play_peer;
#[cfg(feature = "kafka")]
pub use replay::{Replayed, replay};
