//! A disk that is full: what was acknowledged stays, what was not is the client's to write again.

mod clients;
mod observe;

use std::sync::Mutex;
use std::time::Duration;

use clients::kafka::{PATIENCE, at, config, consumed, create_topic, with};
use clients::postgres::connect;
use levada_testcontainers::{Error, Kafka, Postgres, unique_name, wait_until};
use observe::is_alive;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// Room for a new server and the next segment of its log.
const POSTGRES_DISK: u64 = 64 << 20;
const KAFKA_DISK: u64 = 64 << 20;

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
    let client = connect(postgres.url()).await.unwrap();
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
    insert(&connect(postgres.url()).await.unwrap(), 1000).await.unwrap();
}

/// [TST-04] A standby has a disk of its own; the primary keeps for it what it finds no room for.
#[tokio::test]
async fn a_standby_on_a_full_disk_holds_up_nobody_and_catches_up() {
    let primary = Postgres::builder().disk(2 * POSTGRES_DISK).start().unwrap();
    primary.psql("CREATE TABLE rows (id bigint, padding text)").unwrap();
    let standby = primary.standby().unwrap();
    standby.fill_disk().unwrap();
    let client = connect(primary.url()).await.unwrap();
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

/// A producer that gives a record up after `patience`.
fn producer(kafka: &Kafka, patience: Duration) -> BaseProducer<Outcomes> {
    let timeout = patience.as_millis().to_string();
    config(&with(at(kafka.bootstrap()), "message.timeout.ms", &timeout))
        .create_with_context(Outcomes::default())
        .unwrap()
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
    let payloads = consumed(&at(kafka.bootstrap()), topic);
    payloads.iter().map(|payload| payload.split_once(' ').unwrap().0.parse().unwrap()).collect()
}

/// [TST-04] A broker that cannot write its log ends by itself; its producers wait in vain.
#[test]
fn a_broker_on_a_full_disk_ends_and_comes_back_with_all_that_it_acknowledged() {
    let kafka = Kafka::builder().disk(KAFKA_DISK).start().unwrap();
    let topic = unique_name("full");
    create_topic(&at(kafka.bootstrap()), &topic, &[1], &[]);
    let (patient, impatient) = (producer(&kafka, PATIENCE), producer(&kafka, Duration::from_secs(5)));
    let mut acknowledged = Vec::new();
    for id in 0..10 {
        produce(&patient, &topic, id).unwrap();
        acknowledged.push(id);
    }
    let pid = kafka.broker(1).pid().unwrap();
    kafka.broker(1).fill_disk().unwrap();
    let refusal = loop {
        let id = acknowledged.len();
        assert!(id < 10_000, "the disk does not get full");
        match produce(&impatient, &topic, id) {
            Ok(()) => acknowledged.push(id),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut));
    wait_until(PATIENCE, "the end of the broker", || !is_alive(pid)).unwrap();
    // A client that ignores the error: these records are gone.
    for id in [20_001, 20_002] {
        produce(&impatient, &topic, id).unwrap_err();
    }
    assert!(kafka.logs().contains("Shutdown broker because all log dirs"), "{}", kafka.logs());
    kafka.broker(1).free_disk().unwrap();
    kafka.restart().unwrap();
    let found = numbers(&kafka, &topic);
    assert_eq!(found[..acknowledged.len()], acknowledged);
    assert!(!found.contains(&20_001) && !found.contains(&20_002), "the fault does not bite");
    produce(&patient, &topic, 30_000).unwrap();
    assert_eq!(numbers(&kafka, &topic).last(), Some(&30_000));
}
