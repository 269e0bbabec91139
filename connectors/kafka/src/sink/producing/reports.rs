//! What the client tells: reports of delivery, and errors.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _};
use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};
use rdkafka::{ClientContext, Statistics};

use super::error::{ClientError, Undelivered};
use super::ledger::Ledger;
use super::origins::{Origin, Origins};

/// librdkafka's producer, with our account of it.
pub(super) type Client = BaseProducer<Reports>;

/// Called on the client's own thread, for whatever it has to tell.
pub(super) struct Reports {
    pub(super) ledger: Arc<Ledger>,
    pub(super) origins: Origins,
    last_error: Mutex<Option<ClientError>>,
    /// Why the transaction cannot be committed any more, in the client's words: it says so in its log alone.
    failed_by: Mutex<Option<String>>,
}

/// What the client calls a failed transaction in its log.
const TRANSACTION_FAILED: &str = "TXNERR";

impl Reports {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self {
            ledger,
            origins: Origins::default(),
            last_error: Mutex::default(),
            failed_by: Mutex::default(),
        }
    }

    fn note_failed(&self, message: &BorrowedMessage<'_>, origin: usize, cause: ClientError) {
        self.ledger.note_failed(Undelivered {
            topic: message.topic().to_owned(),
            partition: u32::try_from(message.partition()).ok(),
            origin: self.origins.full(Origin::from_word(origin)),
            bytes: bytes_of(message),
            cause,
        });
    }

    /// Tells why a message failed. When a transaction has failed, the client drops what it has not sent, with no other reason than
    /// that.
    fn cause_of(&self, error: &KafkaError) -> ClientError {
        let ClientError { code, text } = ClientError::of(error);
        let is_dropped = matches!(code, RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight);
        let failed_by = self.failed_by.lock().unwrap_or_else(PoisonError::into_inner);
        match failed_by.as_ref().filter(|_| is_dropped) {
            Some(failed_by) => ClientError { code, text: format!("{text}; before that: {failed_by}") },
            None => ClientError { code, text },
        }
    }

    /// Returns what the client said last about its connections. No failure by itself: the client tries again, and what it
    /// cannot deliver in the end has a report.
    pub(super) fn last_error(&self) -> Option<ClientError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ClientContext for Reports {
    fn error(&self, error: KafkaError, reason: &str) {
        let code = ClientError::of(&error).code;
        let said = ClientError { code, text: reason.to_owned() };
        tracing::debug!(error = %said, "the Kafka client reports");
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }

    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "librdkafka");
        if facility == TRANSACTION_FAILED {
            let mut failed_by = self.failed_by.lock().unwrap_or_else(PoisonError::into_inner);
            failed_by.get_or_insert_with(|| message.to_owned());
        }
    }

    fn stats(&self, _statistics: Statistics) {}

    fn stats_raw(&self, _statistics: &[u8]) {}
}

impl ProducerContext for Reports {
    /// An [`Origin`]: what else there is to know of a message, the client gives back with it.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, origin: usize) {
        match result {
            // What has an offset was written there.
            Ok(message) if message.offset() >= 0 => {
                self.ledger.note_acked(bytes_of(message), message.topic(), message.partition());
            }
            Ok(message) => self.note_failed(message, origin, inferred()),
            Err((error, message)) => self.note_failed(message, origin, self.cause_of(error)),
        }
    }
}

/// A batch whose fate is uncertain is reported as delivered when a later one of its producer is: a broker that knows the producer would
/// have refused the later one. One that does not know it yet takes it, and the first messages of a partition were reported so and
/// were nowhere.
fn inferred() -> ClientError {
    let text =
        "the client infers from a later message that it was delivered; no broker has said so".to_owned();
    ClientError { code: RDKafkaErrorCode::MessageTimedOut, text }
}

/// The size of key, value and headers: what `Message::bytes` said before it was sent.
fn bytes_of(message: &BorrowedMessage<'_>) -> usize {
    let header = |header: Header<'_, &[u8]>| header.key.len() + header.value.map_or(0, <[u8]>::len);
    let headers = message.headers().map_or(0, |headers| headers.iter().map(header).sum());
    message.key_len() + message.payload_len() + headers
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use levada_core::ErrorChain;
    use levada_testcontainers::{Kafka, unique_name};
    use rdkafka::ClientConfig;
    use rdkafka::producer::{BaseRecord, Producer as _};

    use super::*;

    /// [KSK-03] with `acks=0` no broker says anything, so every report is one of the client's own.
    #[test]
    fn report_without_an_offset_is_a_failure() {
        let kafka = Kafka::shared().expect("Kafka");
        let topic = unique_name("inferred");
        kafka.create_topic(&topic, 1).expect("a topic");
        let send = |acks| {
            let ledger = Arc::new(Ledger::new(1 << 20));
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", kafka.bootstrap()).set("acks", acks);
            let client: Client =
                config.create_with_context(Reports::new(Arc::clone(&ledger))).expect("a client");
            ledger.note_sent();
            let record = BaseRecord::<(), str, usize>::with_opaque_to(&topic, Origin::NONE.word());
            client.send(record.payload("value")).map_err(|(error, _)| error).expect("it is taken");
            client.flush(Duration::from_secs(30)).expect("a report");
            assert_eq!(ledger.outstanding(), 0);
            ledger.check().map_err(|error| ErrorChain(&error).to_string())
        };
        assert_eq!(send("all"), Ok(()));
        let failed = send("0").expect_err("no broker has said so");
        assert!(failed.contains("no broker has said so"), "{failed}");
    }

    /// What was dropped because its transaction had failed is told with the reason for that, and nothing else is.
    #[test]
    fn message_that_was_dropped_names_what_its_transaction_failed_by() {
        let reports = Reports::new(Arc::new(Ledger::new(1 << 20)));
        let dropped = KafkaError::MessageProduction(RDKafkaErrorCode::PurgeQueue);
        let said = reports.cause_of(&dropped).to_string();
        reports.log(RDKafkaLogLevel::Error, "FAIL", "a connection was closed");
        assert_eq!(reports.cause_of(&dropped).to_string(), said);
        for message in ["the first reason", "what followed"] {
            reports.log(RDKafkaLogLevel::Error, TRANSACTION_FAILED, message);
        }
        assert!(
            reports.cause_of(&dropped).to_string().contains("; before that: the first reason (PurgeQueue)")
        );
        let timed_out = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        assert!(!reports.cause_of(&timed_out).to_string().contains("reason"));
    }
}
