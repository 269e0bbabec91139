//! librdkafka as a stranger would use it: topics, records in, records out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_testcontainers::{unique_name, wait_until};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Properties = Vec<(String, String)>;

/// The properties of a client in the clear.
pub fn at(bootstrap: &str) -> Properties {
    with(with(Vec::new(), "bootstrap.servers", bootstrap), "reconnect.backoff.max.ms", "200")
}

/// The last value of a property counts.
pub fn with(mut properties: Properties, name: &str, value: &str) -> Properties {
    properties.push((name.to_owned(), value.to_owned()));
    properties
}

pub fn config(properties: &Properties) -> ClientConfig {
    properties.iter().cloned().collect()
}

/// Creates a topic of one partition, whose first replica leads it.
pub fn create_topic(properties: &Properties, name: &str, replicas: &[i32], settings: &[(&str, &str)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let admin: AdminClient<DefaultClientContext> = config(properties).create().unwrap();
    let assignment = [replicas];
    let mut topic = NewTopic::new(name, 1, TopicReplication::Variable(&assignment));
    for (name, value) in settings {
        topic = topic.set(name, value);
    }
    let created = runtime.block_on(admin.create_topics([&topic], &AdminOptions::new())).unwrap();
    created.into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

/// Sends records and returns those that the broker acknowledged within `patience`.
pub fn acknowledged(
    properties: &Properties,
    topic: &str,
    values: impl IntoIterator<Item = String>,
    patience: Duration,
) -> Vec<String> {
    use rdkafka::ClientContext;
    use rdkafka::producer::{DeliveryResult, ProducerContext};

    #[derive(Clone, Default)]
    struct Acknowledged(Arc<Mutex<Vec<String>>>);
    impl ClientContext for Acknowledged {}
    impl ProducerContext for Acknowledged {
        type DeliveryOpaque = ();
        fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
            // Without an offset, it is the client's own conclusion.
            if let Ok(message) = result
                && message.offset() >= 0
            {
                let value = String::from_utf8(message.payload().unwrap().to_vec()).unwrap();
                self.0.lock().unwrap().push(value);
            }
        }
    }

    let context = Acknowledged::default();
    let timeout = patience.as_millis().to_string();
    let properties = with(properties.clone(), "message.timeout.ms", &timeout);
    let producer: BaseProducer<Acknowledged> =
        config(&properties).create_with_context(context.clone()).unwrap();
    for value in values {
        producer.send(BaseRecord::<(), str>::to(topic).payload(&value)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(patience + Duration::from_secs(5)).unwrap();
    drop(producer);
    context.0.lock().unwrap().clone()
}

/// The payloads of a topic from its beginning to its end.
pub fn consumed(properties: &Properties, topic: &str) -> Vec<String> {
    let properties = with(properties.clone(), "group.id", &unique_name("group"));
    let properties = with(properties, "enable.partition.eof", "true");
    let consumer: BaseConsumer = config(&properties).create().unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut payloads = Vec::new();
    wait_until(PATIENCE, "the end of the topic", || match consumer.poll(Duration::from_millis(50)) {
        Some(Ok(message)) => {
            payloads.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
            false
        }
        Some(Err(rdkafka::error::KafkaError::PartitionEOF(0))) => true,
        _ => false,
    })
    .unwrap();
    payloads
}

/// The first error that a client reports which is not let in.
pub fn refusal(properties: &Properties) -> RDKafkaErrorCode {
    let consumer: BaseConsumer = config(&with(properties.clone(), "group.id", "refused")).create().unwrap();
    consumer.subscribe(&["refused"]).unwrap();
    let mut reason = None;
    wait_until(PATIENCE, "an error", || {
        let polled = consumer.poll(Duration::from_millis(50));
        reason = polled.and_then(Result::err).and_then(|error| error.rdkafka_error_code());
        reason.is_some()
    })
    .unwrap();
    reason.unwrap()
}
