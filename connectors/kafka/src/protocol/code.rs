//! The error codes of Kafka's protocol.

use std::fmt;

use kafka_protocol::error::ResponseError;

/// An error code in a broker's answer; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// There is no such topic or partition, or this broker has not heard of it.
    pub const UNKNOWN_TOPIC_OR_PARTITION: ErrorCode = ErrorCode(3);
    /// The coordinator reads its log.
    pub const COORDINATOR_LOAD_IN_PROGRESS: ErrorCode = ErrorCode(14);
    /// There is no coordinator now.
    pub const COORDINATOR_NOT_AVAILABLE: ErrorCode = ErrorCode(15);
    /// We may not use the topic like that.
    pub const TOPIC_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(29);
    /// We may not do that to the cluster.
    pub const CLUSTER_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(31);
    /// Another broker is the coordinator.
    pub const NOT_COORDINATOR: ErrorCode = ErrorCode(16);
    /// The API is not spoken in this version.
    pub const UNSUPPORTED_VERSION: ErrorCode = ErrorCode(35);
    /// Another epoch is the current one (in old versions of a request).
    pub const INVALID_PRODUCER_EPOCH: ErrorCode = ErrorCode(47);
    /// The transaction is in no state for that.
    pub const INVALID_TXN_STATE: ErrorCode = ErrorCode(48);
    /// The transactional id has another producer id, or none.
    pub const INVALID_PRODUCER_ID_MAPPING: ErrorCode = ErrorCode(49);
    /// The time-out is above what the brokers allow.
    pub const INVALID_TRANSACTION_TIMEOUT: ErrorCode = ErrorCode(50);
    /// The transaction is in transition.
    pub const CONCURRENT_TRANSACTIONS: ErrorCode = ErrorCode(51);
    /// We may not use the transactional id.
    pub const TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorCode = ErrorCode(53);
    /// A transaction that is open has offsets of the group in it.
    pub const UNSTABLE_OFFSET_COMMIT: ErrorCode = ErrorCode(88);
    /// Another epoch is the current one.
    pub const PRODUCER_FENCED: ErrorCode = ErrorCode(90);
    /// The coordinator does not know the id.
    pub const TRANSACTIONAL_ID_NOT_FOUND: ErrorCode = ErrorCode(105);

    /// Takes a code as it stands in an answer: `None` for success.
    pub(super) fn of(code: i16) -> Option<ErrorCode> {
        (code != 0).then_some(ErrorCode(code))
    }

    /// Tells whether the same request may do better after a pause, perhaps at another broker.
    ///
    /// An unknown topic is not among them: whoever asks a leader that has not heard of its partition yet says so itself.
    #[must_use]
    pub fn is_retriable(self) -> bool {
        // Leader and replica elections, too few replicas in sync, time-outs and full disks on the broker's side, the network
        // between brokers.
        const PASSING: [i16; 11] = [5, 6, 7, 8, 9, 13, 19, 20, 56, 72, 74];
        const COORDINATION: [ErrorCode; 5] = [
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode::COORDINATOR_NOT_AVAILABLE,
            ErrorCode::NOT_COORDINATOR,
            ErrorCode::CONCURRENT_TRANSACTIONS,
            ErrorCode::UNSTABLE_OFFSET_COMMIT,
        ];
        PASSING.contains(&self.0) || COORDINATION.contains(&self)
    }

    /// Tells whether somebody else may be the coordinator by now.
    pub(super) fn is_of_a_moved_coordinator(self) -> bool {
        [ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_NOT_AVAILABLE].contains(&self)
    }
}

/// Prints the protocol's name and the number: `PRODUCER_FENCED (90)`.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ResponseError::try_from_code(self.0) {
            None | Some(ResponseError::Unknown(_)) => write!(f, "error code {}", self.0),
            Some(known) => write!(f, "{} ({})", protocol_name(&format!("{known:?}")), self.0),
        }
    }
}

/// `ProducerFenced` is `PRODUCER_FENCED`.
fn protocol_name(camel: &str) -> String {
    let mut name = String::new();
    for letter in camel.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [KSK-09] the retried codes by number, and those that are classed by asking.
    #[test]
    fn codes_of_moves_and_transitions_are_retriable_and_refusals_are_not() {
        for code in [14, 15, 16, 19, 20, 51, 56] {
            assert!(ErrorCode(code).is_retriable(), "{code}");
        }
        for code in [3, 35, 47, 48, 49, 50, 53, 90, 105, -1, 9999] {
            assert!(!ErrorCode(code).is_retriable(), "{code}");
        }
    }

    #[test]
    fn code_is_printed_by_its_name_in_the_protocol() {
        assert_eq!(ErrorCode::PRODUCER_FENCED.to_string(), "PRODUCER_FENCED (90)");
        assert_eq!(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND.to_string(), "TRANSACTIONAL_ID_NOT_FOUND (105)");
        assert_eq!(ErrorCode(9999).to_string(), "error code 9999");
    }
}
