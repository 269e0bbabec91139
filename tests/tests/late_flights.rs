//! The recipe that needs Kafka, held against a program that shares no code with it.

use std::path::Path;
use std::process::{Command, Output};

use levada_testcontainers::{Kafka, unique_name};

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// [TIM-01] [TIM-03] A month of real flights over 8 partitions: what is late for each partition's own
/// watermark, what is late for one of all, and how many have no event time, are what an independent program makes of the file.
#[test]
fn late_flights_of_each_partition_and_of_all_mixed_equal_an_independent_count() {
    let kafka = Kafka::shared().expect("Kafka");
    let recipe = Command::new(env!("CARGO_BIN_EXE_late-flights-under-test"))
        .arg(unique_name("landings"))
        .env("LEVADA_KAFKA_BOOTSTRAP", kafka.bootstrap())
        .output()
        .expect("the recipe starts");
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/late_flights.py");
    let expected = printed(&Command::new("python3").arg(oracle).output().expect("python3"));
    assert_eq!(printed(&recipe), expected);

    let late = |line: &str| -> u64 {
        let found = expected.lines().find_map(|printed| printed.strip_prefix(line)).expect("the line");
        found.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
    };
    let (each, mixed) = (late("a watermark for each partition: "), late("one watermark for all of them: "));
    assert!(0 < each && each < mixed, "{expected}");
}
