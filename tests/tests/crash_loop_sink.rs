//! The Postgres sink alone under kill -9: at every fail point and at random moments, while rows flow.
#![cfg(feature = "failpoints")]

use std::process::Command;
use std::time::Duration;

use levada_postgres::sink::FAIL_POINTS;
use levada_testcontainers::crash::{CrashLoop, Life, Verdict};
use levada_testcontainers::{Database, Error, Postgres, wait_until};
use levada_tests::bridge::PATIENCE;
use levada_tests::loop_length::loop_length;

const SINK: &str = env!("CARGO_BIN_EXE_sink-under-test");

/// The steps of a commit, which a life passes again and again.
const COMMIT: &str = "pg::commit";

/// An insert-only table without a key, where every row that is written twice shows.
struct Scene {
    database: Database,
}

impl Scene {
    fn new() -> Self {
        let database = Postgres::database().expect("a database");
        database.psql("CREATE TABLE log (split int NOT NULL, n bigint NOT NULL)").expect("a table");
        database.psql(&levada_postgres::sink::ddl()).expect("the table of positions");
        Self { database }
    }

    fn sink(&self) -> Command {
        let mut command = Command::new(SINK);
        command.arg(self.database.url());
        command
    }

    fn numbers(&self, sql: &str) -> Result<Vec<u64>, Box<dyn std::error::Error + Send + Sync>> {
        let text = self.database.psql(sql)?;
        Ok(text.trim().split(['|', '\n']).map(str::parse).collect::<Result<_, _>>()?)
    }

    /// As many rows as the positions say. One statement sees both as of one moment: what the killed one's server
    /// process may still be doing changes both or neither.
    fn look(&self) -> Verdict {
        let sql = "SELECT (SELECT count(*) FROM log), (SELECT coalesce(sum(next), 0) FROM levada.positions)";
        let [rows, positions] = self.numbers(sql)?[..] else {
            return Err("two numbers were asked for".into());
        };
        match rows.cmp(&positions) {
            std::cmp::Ordering::Less => Err(format!("{} rows are lost", positions - rows).into()),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(format!("{} rows are doubled", rows - positions).into()),
        }
    }

    /// In each split the rows 0, 1, 2, … up to the position, each once. Returns how many there are in all.
    fn assert_exact(&self) -> u64 {
        let sql = "SELECT count(*), count(DISTINCT n), max(n) + 1, min(next)
                   FROM log JOIN levada.positions USING (split) GROUP BY split ORDER BY split";
        let found = self.numbers(sql).expect("numbers");
        assert_eq!(found.len(), 8, "two splits: {found:?}");
        for split in found.chunks(4) {
            assert!(
                split.iter().all(|number| *number == split[0]),
                "count, distinct, last, position: {split:?}"
            );
        }
        found.iter().step_by(4).sum()
    }

    /// Ends the connection until the sink connects anew and dies there.
    fn end_connection(&self, life: &mut Life) -> Verdict {
        life.wait_for_log("claimed", PATIENCE)?;
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE application_name = 'levada/sink/0' AND datname = current_database()";
        wait_until(PATIENCE, "a sink that connects anew", || {
            self.database.psql(sql).is_ok() && life.has_ended()
        })?;
        Ok(())
    }
}

fn short_lives(name: &str) -> CrashLoop<'_> {
    CrashLoop::new(name).moments(Duration::from_millis(20)..=Duration::from_millis(600))
}

/// [PGS-02] [PGS-03] rows from nowhere, in commits of various sizes, through the sink as a library.
#[test]
#[ignore = "takes 30 s or LEVADA_CRASH_SECONDS; ./check runs it"]
fn killed_sink_writes_every_row_exactly_once() {
    let scene = Scene::new();
    let length = loop_length(30, 300);
    let report = short_lives("sink alone")
        .points(FAIL_POINTS)
        .point("pg::claim::before", 1..=1)
        .point("pg::claim::after", 1..=1)
        .in_the_middle("pg::reconnect", |life| scene.end_connection(life))
        .lasting(length)
        .after_each(|_| scene.look())
        .run(|_| scene.sink());
    let report = report.unwrap_or_else(|error| panic!("{}", error.chain()));
    println!("{report}");
    println!("  {} rows, each once", scene.assert_exact());
    report.covered().expect("a kill at every point");
    assert!(u64::from(report.kills()) >= length.as_secs(), "only {} kills", report.kills());
}

/// Kills a program that goes wrong; returns the complaint.
fn found_out(name: &str) -> String {
    let scene = Scene::new();
    let folder = tempfile::tempdir().expect("a folder");
    let memory = folder.path().join("memory");
    let steps = FAIL_POINTS.iter().filter(|point| point.starts_with(COMMIT));
    let result = short_lives(name).points(steps).lives(50).after_each(|_| scene.look()).run(|_| {
        let mut sink = scene.sink();
        sink.arg(name).arg(&memory);
        sink
    });
    match result {
        Err(Error::Complaint { source, .. }) => source.to_string(),
        other => panic!("a complaint of the oracle was expected: {other:?}"),
    }
}

/// The counter-test: the loop finds out a program that notes its progress before the commit.
#[test]
fn sink_that_is_told_to_go_on_ahead_of_its_commit_loses_rows() {
    let complaint = found_out("ahead");
    assert!(complaint.ends_with("rows are lost"), "{complaint}");
}

/// The counter-test: the loop finds out a program that notes its progress after the commit.
#[test]
fn sink_that_is_told_to_go_on_behind_its_commit_doubles_rows() {
    let complaint = found_out("behind");
    assert!(complaint.ends_with("rows are doubled"), "{complaint}");
}
