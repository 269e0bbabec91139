//! What the client tells: reports of delivery, and errors.

use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};
use rdkafka::{ClientContext, Statistics};

use super::error::{ClientError, Undelivered};
use super::ledger::Ledger;
use super::origins::{Origin, Origins};

/// librdkafka's producer, with our account of it.
pub(super) type Client = BaseProducer<Reports>;

/// What goes with a message to its report.
pub(super) struct Sent {
    /// The room that it takes.
    pub(super) weight: u32,
    pub(super) bytes: usize,
    pub(super) origin: Option<Origin>,
}

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
    type DeliveryOpaque = Box<Sent>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<Sent>) {
        let Sent { weight, bytes, origin } = *sent;
        match result {
            Ok(message) => self.ledger.note_acked(weight, bytes, message.topic(), message.partition()),
            Err((error, message)) => {
                let undelivered = Undelivered {
                    topic: message.topic().to_owned(),
                    partition: u32::try_from(message.partition()).ok(),
                    origin: origin.and_then(|origin| self.origins.full(origin)),
                    bytes,
                    cause: ClientError::of(error),
                };
                self.ledger.note_failed(weight, undelivered);
            }
        }
    }
}
