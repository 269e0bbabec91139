//! The idempotent producer that one would write without us.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use levada_benches::measure::{Run, Stopwatch};
use levada_core::BatchBuilder;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};

use crate::load::{Failure, Filler, IN_FLIGHT, LINGER};

/// Counts reports, as every program must that is to know what it has written.
#[derive(Debug, Default)]
struct Counts {
    acked: AtomicU64,
    failed: AtomicU64,
}

impl ClientContext for Counts {}

impl ProducerContext for Counts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let count = if result.is_ok() { &self.acked } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

type Client = BaseProducer<Counts>;

pub(crate) fn run(brokers: &str, topic: &str, lasts: Duration) -> Result<Run, Failure> {
    let client: Client = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", "murmur2_random")
        .set("linger.ms", LINGER.as_millis().to_string())
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", (IN_FLIGHT / 1024).to_string())
        .create_with_context(Counts::default())?;
    client.client().fetch_metadata(Some(topic), Duration::from_secs(30))?;
    let client = Arc::new(client);
    let mut filler = Filler::new(lasts);
    let watch = Stopwatch::default();
    let poller = {
        let client = Arc::clone(&client);
        thread::spawn(move || {
            while Arc::strong_count(&client) > 1 {
                client.poll(Duration::from_millis(50));
            }
        })
    };
    send_all(&client, &mut filler, topic)?;
    client.flush(Duration::from_secs(120))?;
    let (acked, failed) = (&client.context().acked, &client.context().failed);
    assert_eq!((acked.load(Ordering::SeqCst), failed.load(Ordering::SeqCst)), (filler.filled(), 0));
    drop(client);
    poller.join().map_err(|_| "the poller has panicked")?;
    Ok(watch.stop(filler.filled()))
}

fn send_all(client: &Client, filler: &mut Filler, topic: &str) -> Result<(), Failure> {
    let mut builder = BatchBuilder::recycling();
    while filler.fill(&mut builder) {
        let (batch, _) = builder.finish();
        for record in batch.records() {
            let key = batch.key(&record.origin).unwrap_or_default();
            let value = batch.value(&record.origin).unwrap_or_default();
            let mut message = BaseRecord::to(topic).key(key).payload(value);
            while let Err((error, unsent)) = client.send(message) {
                if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                    return Err(error.into());
                }
                // The poller makes room.
                client.poll(Duration::from_millis(1));
                message = unsent;
            }
        }
    }
    Ok(())
}
