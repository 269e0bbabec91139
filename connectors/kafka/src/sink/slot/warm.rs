//! Making a slot ready.

use tokio::time::Instant;

use super::describe::{Describe, ProducerIdentity};
use crate::failpoint::fail_point;
use crate::sink::producing::{KafkaSinkConfig, ProduceError, Producer};

/// A producer that can be written to at once, and who it is.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) id: String,
    pub(super) identity: ProducerIdentity,
    pub(super) producer: Producer,
    /// When its coordinator said so.
    pub(super) since: Instant,
}

/// Initialises `id`, and asks its coordinator who that made it. Who initialises the id in between changes the epoch; then
/// brokers refuse the first message, and who does it later is seen by the difference.
pub(super) async fn warmed<D: Describe>(
    config: &KafkaSinkConfig,
    describe: &D,
    id: String,
    topics: Vec<String>,
) -> Result<Ready, ProduceError> {
    fail_point!("kafka::slot::before_init");
    let producer = Producer::ready(config, &id, topics).await?;
    fail_point!("kafka::slot::after_init");
    let within = config.open_within;
    let asked = tokio::time::timeout(within, describe.describe(&id)).await;
    let unknown = |reason| ProduceError::Describe { id: id.clone(), reason };
    let identity = match asked {
        Ok(Ok(Some(identity))) => identity,
        Ok(Ok(None)) => return Err(unknown("its coordinator does not know it".to_owned())),
        Ok(Err(cause)) => return Err(unknown(levada_core::ErrorChain(&*cause).to_string())),
        Err(_) => return Err(unknown(format!("no answer within {within:?}"))),
    };
    fail_point!("kafka::slot::warm");
    Ok(Ready { id, identity, producer, since: Instant::now() })
}
