//! A disk that is full: what was acknowledged stays, what was not is the client's to write again.

mod observe;

use std::sync::Mutex;
use std::time::Duration;

use levada_testcontainers::{Error, Kafka, Postgres, unique_name, wait_until};
use observe::is_alive;
use rdkafka::Offset;
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

const PATIENCE: Duration = Duration::from_secs(60);

/// Room for a new server and the next segment of its log.
const POSTGRES_DISK: u64 = 64 << 20;
const KAFKA_DISK: u64 = 64 << 20;

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Inserts a row of 1 kB, so that a page of the table is full after eight at most.
async fn insert(client: &Client, id: i64) -> Result<(), tokio_postgres::Error> {
    let sql = format!("INSERT INTO rows VALUES ({id}, repeat('x', 1000))");
    client.batch_execute(&sql).await
}

fn ids(postgres: &Postgres) -> Vec<i64> {
    let rows = postgres.psql("SELECT id FROM rows ORDER BY id").unwrap();
    rows.lines().map(|id| id.parse().unwrap()).collect()
}

async fn with_table() -> (Postgres, Client) {
    let postgres = Postgres::builder().disk(POSTGRES_DISK).start().unwrap();
    let client = connect(postgres.url()).await;
    client.batch_execute("CREATE TABLE rows (id bigint, padding text)").await.unwrap();
    (postgres, client)
}

/// [TST-04] The table cannot grow: the statement fails, the server stays up.
#[tokio::test]
async fn an_insert_on_a_full_disk_is_refused_and_nothing_acknowledged_is_lost() {
    let (postgres, client) = with_table().await;
    insert(&client, 0).await.unwrap();
    postgres.fill_disk().unwrap();
    let mut acknowledged = vec![0];
    let refusal = loop {
        let id = acknowledged.len() as i64;
        assert!(id < 100, "the disk does not get full");
        match insert(&client, id).await {
            Ok(()) => acknowledged.push(id),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal.code(), Some(&SqlState::DISK_FULL), "{refusal}");
    assert_eq!(ids(&postgres), acknowledged, "reading goes on");
    postgres.free_disk().unwrap();
    // The client that looks at the error writes again what was refused, on the same connection.
    let refused = acknowledged.len() as i64;
    insert(&client, refused).await.unwrap();
    acknowledged.push(refused);
    postgres.kill();
    postgres.restart().unwrap();
    assert_eq!(ids(&postgres), acknowledged);
}

/// [TST-04] The counter-test: whoever looks at no error believes to have written more than there is.
#[tokio::test]
async fn a_client_that_ignores_a_full_disk_has_lost_rows() {
    let (postgres, client) = with_table().await;
    postgres.fill_disk().unwrap();
    for id in 0..20 {
        insert(&client, id).await.ok();
    }
    postgres.free_disk().unwrap();
    assert!(ids(&postgres).len() < 20, "the fault does not bite");
}

/// [TST-04] The write-ahead log cannot grow: the server goes down, and comes back when there is room.
#[tokio::test]
async fn a_server_whose_log_finds_no_room_comes_back_with_all_that_it_acknowledged() {
    let (postgres, client) = with_table().await;
    client.batch_execute("INSERT INTO rows VALUES (-1)").await.unwrap();
    postgres.fill_disk().unwrap();
    let mut acknowledged = vec![-1];
    // Small rows, which fit into the page that is there, with a megabyte of log each.
    for id in 0.. {
        assert!(id < 64, "the disk does not get full");
        let sql = format!(
            "BEGIN; INSERT INTO rows VALUES ({id});
             SELECT pg_logical_emit_message(true, '', repeat('x', 1 << 20)); COMMIT"
        );
        match client.batch_execute(&sql).await {
            Ok(()) => acknowledged.push(id),
            Err(_) => break,
        }
    }
    assert!(postgres.logs().contains("PANIC:  could not write"), "{}", postgres.logs());
    postgres.free_disk().unwrap();
    postgres.restart().unwrap();
    let found = ids(&postgres);
    assert_eq!(found[..acknowledged.len()], acknowledged);
    // The last one may have been written without its acknowledgement.
    assert!(found.len() <= acknowledged.len() + 1, "{found:?}");
    insert(&connect(postgres.url()).await, 1000).await.unwrap();
}

/// [TST-04] A standby has a disk of its own; the primary keeps for it what it finds no room for.
#[tokio::test]
async fn a_standby_on_a_full_disk_holds_up_nobody_and_catches_up() {
    let primary = Postgres::builder().disk(2 * POSTGRES_DISK).start().unwrap();
    primary.psql("CREATE TABLE rows (id bigint, padding text)").unwrap();
    let standby = primary.standby().unwrap();
    standby.fill_disk().unwrap();
    let client = connect(primary.url()).await;
    insert(&client, 1).await.unwrap();
    let is_down = || standby.logs().contains("No space left on device");
    for _ in 0..32 {
        if is_down() {
            break;
        }
        primary.psql("SELECT pg_logical_emit_message(false, '', repeat('x', 1 << 20))").unwrap();
    }
    wait_until(PATIENCE, "the end of the stream", is_down).unwrap();
    insert(&client, 2).await.unwrap();
    standby.free_disk().unwrap();
    standby.restart().unwrap();
    wait_until(PATIENCE, "the rows", || ids(&standby) == [1, 2]).unwrap();
}

/// [TST-04]
#[test]
fn a_server_without_a_disk_of_its_own_cannot_be_filled() {
    let postgres = Postgres::start().unwrap();
    assert!(matches!(postgres.fill_disk(), Err(Error::Refused { .. })));
    assert!(matches!(postgres.free_disk(), Err(Error::Refused { .. })));
}

fn config(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap()).set("reconnect.backoff.max.ms", "200");
    config
}

async fn with_topic() -> (Kafka, String) {
    let kafka = Kafka::builder().disk(KAFKA_DISK).start().unwrap();
    let topic = unique_name("full");
    let admin: AdminClient<DefaultClientContext> = config(&kafka).create().unwrap();
    let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
    admin.create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
    (kafka, topic)
}

/// What became of the records that were sent.
#[derive(Default)]
struct Outcomes(Mutex<Vec<Result<(), KafkaError>>>);

impl ClientContext for Outcomes {}

impl ProducerContext for Outcomes {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let outcome = result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone());
        self.0.lock().unwrap().push(outcome);
    }
}

fn producer(kafka: &Kafka) -> BaseProducer<Outcomes> {
    let mut config = config(kafka);
    config.set("acks", "all").set("message.timeout.ms", "3000");
    config.create_with_context(Outcomes::default()).unwrap()
}

/// Writes a record of 1 kB that begins with its number, and returns when it is acknowledged or given up.
fn produce(producer: &BaseProducer<Outcomes>, topic: &str, id: usize) -> Result<(), KafkaError> {
    let payload = format!("{id} {}", "x".repeat(1000));
    producer.send(BaseRecord::<(), str>::to(topic).payload(&payload)).unwrap();
    producer.flush(PATIENCE).unwrap();
    producer.context().0.lock().unwrap().pop().unwrap()
}

/// The numbers of all records of the topic.
fn numbers(kafka: &Kafka, topic: &str) -> Vec<usize> {
    let consumer: BaseConsumer = config(kafka).set("group.id", unique_name("group")).create().unwrap();
    let (begin, end) = consumer.fetch_watermarks(topic, 0, PATIENCE).unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut numbers = Vec::new();
    wait_until(PATIENCE, "the records", || {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            let payload = std::str::from_utf8(message.payload().unwrap()).unwrap();
            numbers.push(payload.split_once(' ').unwrap().0.parse().unwrap());
        }
        numbers.len() as i64 == end - begin
    })
    .unwrap();
    numbers
}

/// [TST-04] A broker that cannot write its log ends by itself; its producers wait in vain.
#[tokio::test]
async fn a_broker_on_a_full_disk_ends_and_comes_back_with_all_that_it_acknowledged() {
    let (kafka, topic) = with_topic().await;
    let producer = producer(&kafka);
    let mut acknowledged = Vec::new();
    for id in 0..10 {
        produce(&producer, &topic, id).unwrap();
        acknowledged.push(id);
    }
    let pid = kafka.broker(1).pid().unwrap();
    kafka.broker(1).fill_disk().unwrap();
    let refusal = loop {
        let id = acknowledged.len();
        assert!(id < 10_000, "the disk does not get full");
        match produce(&producer, &topic, id) {
            Ok(()) => acknowledged.push(id),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut));
    wait_until(PATIENCE, "the end of the broker", || !is_alive(pid)).unwrap();
    // A client that ignores the error: these records are gone.
    for id in [20_001, 20_002] {
        produce(&producer, &topic, id).unwrap_err();
    }
    assert!(kafka.logs().contains("Shutdown broker because all log dirs"), "{}", kafka.logs());
    kafka.broker(1).free_disk().unwrap();
    kafka.restart().unwrap();
    let found = numbers(&kafka, &topic);
    assert_eq!(found[..acknowledged.len()], acknowledged);
    assert!(!found.contains(&20_001) && !found.contains(&20_002), "the fault does not bite");
    produce(&producer, &topic, 30_000).unwrap();
    assert_eq!(numbers(&kafka, &topic).last(), Some(&30_000));
}
