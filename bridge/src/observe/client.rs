//! What the Kafka client tells of itself.

use serde::Deserialize;

/// Counts of librdkafka's own, as of the last time that it told them (`statistics.interval.ms`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct ClientStatistics {
    /// Requests sent.
    #[serde(rename = "tx")]
    pub requests: u64,
    /// Responses received.
    #[serde(rename = "rx")]
    pub responses: u64,
    /// Bytes of the requests.
    #[serde(rename = "tx_bytes")]
    pub sent: u64,
    /// Bytes of the responses.
    #[serde(rename = "rx_bytes")]
    pub received: u64,
    /// Events that wait to be taken.
    #[serde(rename = "replyq")]
    pub queued: u64,
}

impl ClientStatistics {
    /// Reads the client's document; nothing if it is not as expected.
    pub fn of(document: &str) -> Option<Self> {
        serde_json::from_str(document).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_clients_document() {
        let document = r#"{"name": "levada#consumer-1", "replyq": 3, "tx": 5, "tx_bytes": 500, "rx": 4, "rx_bytes": 90}"#;
        let expected = ClientStatistics { requests: 5, responses: 4, sent: 500, received: 90, queued: 3 };
        assert_eq!(ClientStatistics::of(document), Some(expected));
        assert_eq!(ClientStatistics::of("{}"), None);
    }
}
