//! The recipe from Kafka to Kafka, whose process is killed on the way.

use std::path::Path;
use std::process::Command;

use levada_testcontainers::{Kafka, unique_name};

/// [KSK-11] real flights from topic to topic by a process that is killed and started again: each delay once.
#[test]
fn killed_copy_of_a_topic_has_every_record_once() {
    let kafka = Kafka::shared().expect("Kafka");
    let recipe = Command::new(env!("CARGO_BIN_EXE_checkpointed-kafka-to-kafka-under-test"))
        .arg(unique_name("copied"))
        .env("LEVADA_KAFKA_BOOTSTRAP", kafka.bootstrap())
        .output()
        .expect("the recipe starts");
    assert!(recipe.status.success(), "{}", String::from_utf8_lossy(&recipe.stderr));

    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/flights-2013-01.csv.gz");
    let flights = levada_examples::flights(&data).expect("flights");
    let late = flights.iter().filter(|flight| !flight.value.contains("\"arr_delay\":null")).count();
    let expected = format!("{} flights, {late} delays, {late} of them different\n", flights.len());
    assert!(0 < late && late < flights.len());
    assert_eq!(String::from_utf8_lossy(&recipe.stdout), expected);
}
