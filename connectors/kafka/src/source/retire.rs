//! Ending a client that another one has taken the place of.

use std::time::Instant;

use rdkafka::consumer::{BaseConsumer, ConsumerContext};

/// Drops a client on a thread of its own.
///
/// Closing a client waits for its threads and for what they have asked brokers. One that is out of order may take long, or
/// for ever, and nobody waits for it any more: its thread, and what it has fetched ahead, are what it then costs.
pub(super) fn retire<C: ConsumerContext + 'static>(consumer: BaseConsumer<C>) {
    let end = move || {
        let begun = Instant::now();
        drop(consumer);
        tracing::debug!(took = ?begun.elapsed(), "a client that was replaced has ended");
    };
    if let Err(error) = std::thread::Builder::new().name("kafka-retired".to_owned()).spawn(end) {
        // The client was dropped with the thread that could not be started.
        tracing::warn!(%error, "a client was closed where it stood");
    }
}
