//! Twenty tests at once on one broker and one server.

mod clients;
mod observe;

use std::collections::HashSet;

use clients::kafka::{PATIENCE, acknowledged, at, consumed, create_topic};
use levada_testcontainers::{Kafka, Postgres, unique_name};
use observe::printed;

/// What one of the twenty does: a topic and a database of its own, a record and a row through both.
fn uses_the_shared_servers() {
    let kafka = Kafka::shared().unwrap();
    let database = Postgres::database().unwrap();
    let (properties, topic) = (at(kafka.bootstrap()), unique_name("mine"));
    create_topic(&properties, &topic, &[1], &[]);
    let sent = acknowledged(&properties, &topic, [topic.clone()], PATIENCE);
    assert_eq!(sent.as_slice(), std::slice::from_ref(&topic));
    assert_eq!(consumed(&properties, &topic), sent);
    database.psql(&format!("CREATE TABLE mine AS SELECT '{topic}' AS topic")).unwrap();
    assert_eq!(database.psql("SELECT topic FROM mine").unwrap(), topic);
    println!("\nshared {} {}", kafka.bootstrap(), database.server().url());
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "run as a child process by the other test"]
            fn $name() {
                uses_the_shared_servers();
            }
        )*
    };
}
tests!(t01 t02 t03 t04 t05 t06 t07 t08 t09 t10 t11 t12 t13 t14 t15 t16 t17 t18 t19 t20);

/// [TST-01] [TST-08] In a process that starts the servers itself.
#[test]
fn twenty_parallel_tests_share_one_cluster() {
    let mut twenty = std::process::Command::new(std::env::current_exe().unwrap());
    twenty.args(["--ignored", "--test-threads=20", "--nocapture"]);
    let output =
        twenty.env_remove("LEVADA_KAFKA_BOOTSTRAP").env_remove("LEVADA_POSTGRES_URL").output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("20 passed"), "{text}");
    let shared: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("shared ")).collect();
    assert_eq!(shared.len(), 20, "{text}");
    assert_eq!(shared.into_iter().collect::<HashSet<_>>().len(), 1, "{text}");
}
