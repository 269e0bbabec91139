//! What is in flight is bounded.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use levada_kafka::sink::producing::{Message, Producer};
use levada_testcontainers::{Kafka, wait_until};

use super::support::{PATIENCE, Read, Topic};

const BOUND: usize = 1 << 20;

/// [KSK-06] the bound is in bytes; whoever writes awaits room without holding a thread, and a wait that is given up has sent
/// nothing.
#[tokio::test]
async fn writing_waits_for_room_and_goes_on() {
    let broker = Kafka::start().expect("a broker");
    let topic = Topic::at(broker.bootstrap(), 1, &[]).await;
    let producer =
        Producer::open(&topic.config().in_flight_bytes(BOUND as u32), "pressed").await.expect("open");
    broker.pause().expect("pause");
    let values: Vec<String> = (0..3000).map(|number| format!("{number:>1000}")).collect();
    let mut next = 0;
    // One runtime thread: if writing blocked it, nothing here would go on.
    loop {
        let message = Message::to(&topic.name).value(values[next].as_bytes());
        // Unconstrained: pending shall mean that there is no room, not that others may have a turn.
        let mut sending = pin!(tokio::task::unconstrained(producer.send(&message, None)));
        let polled = std::future::poll_fn(|ctx| Poll::Ready(sending.as_mut().poll(ctx))).await;
        match polled {
            Poll::Ready(sent) => sent.expect("sent"),
            Poll::Pending => break,
        }
        next += 1;
    }
    assert!(next > 100 && next < 3000, "{next} messages");
    assert_eq!(producer.sent(), next as u64);
    assert!(producer.in_flight_bytes() <= BOUND && producer.in_flight_bytes() > BOUND - 2000);
    broker.resume().expect("resume");
    for value in &values[next..] {
        producer.send(&Message::to(&topic.name).value(value.as_bytes()), None).await.expect("sent");
        assert!(producer.in_flight_bytes() <= BOUND);
    }
    producer.flush().await.expect("flush");
    assert_eq!((producer.sent(), producer.in_flight_bytes()), (3000, 0));
    assert_eq!(topic.read().iter().map(Read::text).collect::<Vec<_>>(), values);
}

/// [KSK-06] one message may be larger than all room; it waits until nothing else is in flight.
#[tokio::test]
async fn message_larger_than_all_room_goes_alone() {
    let topic = Topic::new(1).await;
    let producer = Producer::open(&topic.config().in_flight_bytes(1 << 16), "alone").await.expect("open");
    for size in [10, 1 << 18, 10] {
        producer.send(&Message::to(&topic.name).value(&vec![b'x'; size]), None).await.expect("sent");
    }
    producer.flush().await.expect("flush");
    let sizes: Vec<usize> = topic.read().iter().map(|read| read.text().len()).collect();
    assert_eq!(sizes, [10, 1 << 18, 10]);
}

/// [KSK-06] reports are taken by the producer's own thread: they come in while nobody waits for them, polls or flushes.
#[tokio::test]
async fn reports_come_in_by_themselves() {
    let topic = Topic::new(1).await;
    let producer = Producer::open(&topic.config(), "idle").await.expect("open");
    producer.send(&Message::to(&topic.name).value(b"v"), None).await.expect("sent");
    // Blocks the runtime's only thread.
    wait_until(PATIENCE, "the report", || producer.outstanding() == 0).expect("in time");
    assert_eq!(producer.delivered().messages, 1);
}

/// [KSK-06] a report gives back the room that its message took, whatever the message is made of.
#[tokio::test]
async fn room_comes_back_whole_from_messages_of_every_shape() {
    let topic = Topic::new(1).await;
    let producer = Producer::open(&topic.config(), "shapes").await.expect("open");
    let messages = [
        Message::to(&topic.name),
        Message::to(&topic.name).key(b"").value(b""),
        Message::to(&topic.name).key(b"key").value(b"value").partition(0),
        Message::to(&topic.name).value(b"v").header("name", Some(b"of a value")).header("name", None),
        Message::to(&topic.name).key(b"k").header("", Some(b"")).header("z", Some(&[0; 300])),
    ];
    for message in &messages {
        producer.send(message, None).await.expect("sent");
    }
    producer.flush().await.expect("flush");
    let bytes: usize = messages.iter().map(Message::bytes).sum();
    assert_eq!((producer.delivered().bytes, producer.in_flight_bytes()), (bytes as u64, 0));
}
