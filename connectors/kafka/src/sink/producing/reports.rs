//! What the client tells: reports of delivery, and errors.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
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
}

impl Reports {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, origins: Origins::default(), last_error: Mutex::default() }
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
    }

    fn stats(&self, _statistics: Statistics) {}

    fn stats_raw(&self, _statistics: &[u8]) {}
}

impl ProducerContext for Reports {
    /// An [`Origin`]: what else there is to know of a message, the client gives back with it.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, origin: usize) {
        match result {
            Ok(message) => self.ledger.note_acked(bytes_of(message), message.topic(), message.partition()),
            Err((error, message)) => {
                let undelivered = Undelivered {
                    topic: message.topic().to_owned(),
                    partition: u32::try_from(message.partition()).ok(),
                    origin: self.origins.full(Origin::from_word(origin)),
                    bytes: bytes_of(message),
                    cause: ClientError::of(error),
                };
                self.ledger.note_failed(undelivered);
            }
        }
    }
}

/// The size of key, value and headers: what `Message::bytes` said before it was sent.
fn bytes_of(message: &BorrowedMessage<'_>) -> usize {
    let header = |header: Header<'_, &[u8]>| header.key.len() + header.value.map_or(0, <[u8]>::len);
    let headers = message.headers().map_or(0, |headers| headers.iter().map(header).sum());
    message.key_len() + message.payload_len() + headers
}
