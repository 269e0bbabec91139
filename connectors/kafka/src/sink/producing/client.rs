//! The client's configuration.

use rdkafka::ClientConfig;

use super::config::KafkaSinkConfig;

/// Builds the configuration of one producer: our defaults, then the user's properties, then what is ours alone.
pub(super) fn client_config(
    config: &KafkaSinkConfig,
    name: &str,
    transactional_id: Option<&str>,
) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        // The default of 100 ms is what a first message waits for when the transaction before has just ended.
        .set("retry.backoff.ms", "20")
        // With more, a first batch that is refused for a moment, while the second is taken or refused for the gap, costs the transaction.
        .set("max.in.flight.requests.per.connection", "1");
    for (name, value) in &config.properties {
        client.set(name, value);
    }
    client
        .set("bootstrap.servers", &config.bootstrap)
        .set("client.id", format!("{}-{name}", config.client_id))
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", config.partitioner.as_property())
        .set("linger.ms", config.linger.as_millis().to_string())
        .set("message.timeout.ms", config.delivers_within().as_millis().to_string())
        .set("delivery.report.only.error", "false")
        // Ours is the only bound: `Ledger::take_room` waits, the client's own bounds would refuse.
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", i32::MAX.to_string());
    if let Some(id) = transactional_id {
        client
            .set("transactional.id", id)
            .set("transaction.timeout.ms", config.transaction_timeout.milliseconds().to_string());
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_FLIGHT: &str = "max.in.flight.requests.per.connection";

    /// [KSK-06] one batch in flight, unless somebody says otherwise.
    #[test]
    fn user_decides_how_many_batches_are_in_flight() {
        let config = KafkaSinkConfig::new("127.0.0.1:1");
        assert_eq!(client_config(&config, "name", None).get(IN_FLIGHT), Some("1"));
        let config = config.property(IN_FLIGHT, "5");
        assert_eq!(client_config(&config, "name", Some("id")).get(IN_FLIGHT), Some("5"));
    }
}
