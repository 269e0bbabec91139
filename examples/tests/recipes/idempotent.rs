//! The upserts.

use levada_testcontainers::Postgres;

use crate::program::run;

/// [TPL-05] an own UPDATE-then-INSERT: old values for a while, and the same end.
#[test]
fn update_then_insert_converges_after_failures() {
    let out = run(env!("CARGO_BIN_EXE_idempotent_upsert"), &[]);
    let at = |moment: &str, hour: u32| {
        let (_, after) = out.split_once(moment).expect(moment);
        let row = format!("station 0, hour {hour}: ");
        after.split_once(&row).and_then(|(_, value)| value.lines().next()).expect("a row").to_owned()
    };
    assert_eq!(at("on to 14, then a failure", 1), "14");
    assert_eq!(at("older values are back", 1), "8");
    assert_eq!(at("again from 8 to the end", 1), "14");
    assert_eq!(at("again from 8 to the end", 2), "22");
    assert_eq!(out.matches("failed on purpose").count(), 2, "{out}");
    assert!(out.ends_with("the table is what it would be without failures: true\n"), "{out}");
}

/// [TPL-05] an own `ON CONFLICT`, over a connection that is lost.
#[test]
fn on_conflict_converges_after_a_lost_connection() {
    let database = Postgres::database().expect("a database");
    let out = run(env!("CARGO_BIN_EXE_postgres_upsert"), &[database.url()]);
    assert!(out.starts_with("restarts: 1\n"), "{out}");
    assert!(out.ends_with("the table is what it would be without the loss: true\n"), "{out}");
    let rows =
        database.psql("select * from levada_example.readings order by hour, station").expect("a query");
    assert_eq!(rows.trim_end(), "0|0|6\n1|0|7\n0|1|14\n1|1|15\n0|2|22\n1|2|23");
}
