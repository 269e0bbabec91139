//! The requests that are made, by their names.

use kafka_protocol::messages::ApiKey;

/// Returns the name of a request, as the protocol has it.
pub(super) fn name(key: i16) -> &'static str {
    match ApiKey::try_from(key) {
        Ok(ApiKey::ApiVersions) => "ApiVersions",
        Ok(ApiKey::Metadata) => "Metadata",
        Ok(ApiKey::FindCoordinator) => "FindCoordinator",
        Ok(ApiKey::DescribeTransactions) => "DescribeTransactions",
        Ok(ApiKey::ListTransactions) => "ListTransactions",
        Ok(ApiKey::DescribeProducers) => "DescribeProducers",
        Ok(ApiKey::EndTxn) => "EndTxn",
        Ok(ApiKey::InitProducerId) => "InitProducerId",
        Ok(ApiKey::OffsetFetch) => "OffsetFetch",
        Ok(ApiKey::DescribeConfigs) => "DescribeConfigs",
        _ => "a request",
    }
}

/// Tells what cannot be done without a request.
pub(super) fn needed_for(key: i16) -> &'static str {
    match ApiKey::try_from(key) {
        Ok(ApiKey::DescribeTransactions) => {
            "what became of a transaction is decided by it; brokers have it from Kafka 3.0 on"
        }
        Ok(ApiKey::ListTransactions) => {
            "left-over transactions are found by it; brokers have it from Kafka 3.0 on"
        }
        Ok(ApiKey::DescribeProducers) => {
            "who keeps a transaction open is told by it; brokers have it from Kafka 2.8 on"
        }
        Ok(ApiKey::EndTxn) => "transactions are committed by it, in version 4 or below",
        _ => "it is part of what every broker is asked",
    }
}
