//! A Postgres server as a test sees it, through another client: tokio-postgres.

mod clients;
mod observe;

use std::time::Duration;

use clients::postgres::{connect, psql};
use levada_testcontainers::{Error, Postgres, Provider, wait_until};
use observe::{children_of, is_alive, is_root};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

/// [TST-01]
#[test]
fn settings_of_the_builder_replace_ours() -> Result<(), Error> {
    let postgres = Postgres::builder().setting("fsync", "on").setting("max_connections", "7").start()?;
    assert_eq!(postgres.psql("SHOW fsync")?, "on");
    assert_eq!(postgres.psql("SHOW max_connections")?, "7");
    let default = Postgres::start()?;
    assert_eq!(default.psql("SHOW fsync")?, "off");
    assert_eq!(default.psql("SHOW max_connections")?, "200");
    assert_eq!(default.psql("SHOW listen_addresses")?, "127.0.0.1");
    Ok(())
}

/// [TST-01] In the first database and in those made later.
#[test]
fn extensions_are_there() -> Result<(), Error> {
    let postgres = Postgres::builder().extension("pgcrypto").start()?;
    let digest = "SELECT encode(digest('a', 'md5'), 'hex')";
    assert_eq!(postgres.psql(digest)?, "0cc175b9c0f1b6a831c399e269772661");
    postgres.psql("CREATE DATABASE later")?;
    let later = postgres.url().replace("/postgres", "/later");
    assert_eq!(psql(&later, digest).unwrap(), "0cc175b9c0f1b6a831c399e269772661");
    let missing = Postgres::builder().extension("no such").start().unwrap_err();
    assert!(missing.to_string().contains("no such"), "{missing}");
    Ok(())
}

/// [TST-01]
#[test]
fn a_version_is_found_or_named() -> Result<(), Error> {
    let major = Postgres::start()?.psql("SHOW server_version_num")?[..2].to_owned();
    let postgres = Postgres::builder().version(&major).start()?;
    assert!(postgres.psql("SHOW server_version")?.starts_with(&major));
    // An image may be had for any version.
    if Provider::chosen()? == Provider::Process {
        let missing = Postgres::builder().version("8").start().unwrap_err();
        assert!(missing.is_missing_program());
        assert_eq!(
            missing.to_string(),
            "PostgreSQL 8 is missing; install it with: apt-get install --yes postgresql-8"
        );
    }
    Ok(())
}

/// [TST-01]
#[tokio::test]
async fn a_wrong_password_is_refused() {
    let postgres = Postgres::start().unwrap();
    connect(postgres.url()).await.unwrap();
    let wrong = postgres.url().replace("levada-secret", "wrong");
    let refusal = connect(&wrong).await.unwrap_err();
    assert_eq!(refusal.code(), Some(&SqlState::INVALID_PASSWORD));
}

/// [TST-01] Postgres refuses to be root; whoever runs the tests, the server does.
#[test]
fn the_server_never_runs_as_root() -> Result<(), Error> {
    let postgres = Postgres::start()?;
    assert!(!is_root(postgres.pid().unwrap()));
    Ok(())
}

/// [TST-01] The part of [TST-04] that one server can show: kill -9, immediate stop, stop; then the same data and port.
#[tokio::test]
async fn a_committed_row_survives_every_end_and_restart() {
    let postgres = Postgres::start().unwrap();
    postgres.psql("CREATE TABLE rows (id int)").unwrap();
    let kill = || postgres.kill();
    let immediate = || postgres.stop_immediate().unwrap();
    let stop = || postgres.stop().unwrap();
    let ends: [(&str, &dyn Fn()); 3] = [("kill", &kill), ("immediate", &immediate), ("stop", &stop)];
    for (number, (name, end)) in ends.into_iter().enumerate() {
        let client = connect(postgres.url()).await.unwrap();
        let insert = format!("INSERT INTO rows VALUES ({number})");
        client.batch_execute(&insert).await.unwrap();
        end();
        assert_eq!(postgres.pid(), None);
        assert!(connect(postgres.url()).await.is_err(), "{name}: still answers");
        assert!(client.batch_execute("SELECT 1").await.is_err(), "{name}: the old connection lives");
        postgres.restart().unwrap();
        let client = connect(postgres.url()).await.unwrap();
        let count: i64 = client.query_one("SELECT count(*) FROM rows", &[]).await.unwrap().get(0);
        assert_eq!(count, number as i64 + 1, "{name}");
    }
    let recoveries = postgres.logs().matches("was not properly shut down").count();
    assert_eq!(recoveries, 2, "a kill and an immediate stop need recovery, a stop does not");
}

/// [TST-04] Here only: kill -9 reaches the backends too, busy or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_kill_ends_busy_backends() {
    let postgres = Postgres::start().unwrap();
    let busy = connect(postgres.url()).await.unwrap();
    // No wait in it that would notice the death of the postmaster.
    let work =
        tokio::spawn(
            async move { busy.batch_execute("SELECT count(*) FROM generate_series(1, 1e12)").await },
        );
    let active =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%1e12%' AND pid <> pg_backend_pid()";
    wait_until(Duration::from_secs(10), "the query", || postgres.psql(active).unwrap() == "1").unwrap();
    let children = children_of(postgres.pid().unwrap());
    assert!(children.len() > 5, "{children:?}");
    postgres.kill();
    assert!(!children.into_iter().any(is_alive));
    assert!(work.await.unwrap().is_err());
}

/// [TST-04] Here only: stop and continue.
#[tokio::test]
async fn a_paused_server_answers_nothing_until_it_goes_on() {
    let postgres = Postgres::start().unwrap();
    let client = connect(postgres.url()).await.unwrap();
    postgres.pause().unwrap();
    let answer = client.query_one("SELECT 7", &[]);
    tokio::pin!(answer);
    assert!(timeout(Duration::from_millis(300), &mut answer).await.is_err(), "a paused backend answered");
    assert!(
        timeout(Duration::from_millis(300), connect(postgres.url())).await.is_err(),
        "a paused postmaster answered"
    );
    postgres.resume().unwrap();
    let row = timeout(Duration::from_secs(10), answer).await.unwrap().unwrap();
    assert_eq!(row.get::<_, i32>(0), 7);
}

/// [TST-04] That a kill bites: what was acknowledged before it was written is gone, unless the server writes first.
#[tokio::test]
async fn an_acknowledged_row_is_lost_with_the_server_that_had_not_written_it() {
    let mut found = Vec::new();
    // The writer of the log comes by every ten seconds, and may do so just before the kill: but not each time.
    while found.len() < 5 && !found.contains(&0) {
        found.push(rows_after_a_kill("off").await);
    }
    assert!(found.contains(&0), "the fault does not bite");
    assert_eq!(rows_after_a_kill("on").await, 1);
}

/// How many rows are left of one that was acknowledged just before the kill of its server.
async fn rows_after_a_kill(synchronous_commit: &str) -> i64 {
    let postgres = Postgres::builder().setting("synchronous_commit", synchronous_commit);
    let postgres = postgres.setting("wal_writer_delay", "10s").start().unwrap();
    postgres.psql("CREATE TABLE rows (id int)").unwrap();
    postgres.psql("CHECKPOINT").unwrap();
    let client = connect(postgres.url()).await.unwrap();
    client.batch_execute("INSERT INTO rows VALUES (1)").await.unwrap();
    postgres.kill();
    postgres.restart().unwrap();
    let client = connect(postgres.url()).await.unwrap();
    client.query_one("SELECT count(*) FROM rows", &[]).await.unwrap().get(0)
}

/// [TST-04]
#[test]
fn a_fault_on_a_dead_server_is_an_error_or_nothing() {
    let postgres = Postgres::start().unwrap();
    postgres.kill();
    postgres.kill();
    postgres.stop().unwrap();
    assert!(matches!(postgres.pause(), Err(Error::NotRunning { server: "Postgres" })));
}

/// [TST-01]
#[test]
fn parallel_tests_have_databases_of_their_own() -> Result<(), Error> {
    let (first, second) = (Postgres::database()?, Postgres::database()?);
    assert_eq!(first.server().url(), second.server().url(), "the server is shared");
    first.psql("CREATE TABLE mine (id int)")?;
    assert!(second.psql("SELECT * FROM mine").is_err());
    let (server, name) = (first.server().clone(), first.name().to_owned());
    let exists = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
    assert_eq!(server.psql(&exists)?, "1");
    drop(first);
    assert_eq!(server.psql(&exists)?, "0");
    Ok(())
}

/// [TST-01]
#[test]
fn a_failed_statement_says_why() {
    let database = Postgres::database().unwrap();
    let error = database.psql("SELECT * FROM nowhere").unwrap_err();
    assert!(error.to_string().contains("relation \"nowhere\" does not exist"), "{error}");
}

/// [TST-01]
#[test]
fn a_bad_setting_fails_the_start_with_the_server_s_words() {
    let error = Postgres::builder().setting("max_connections", "many").start().unwrap_err();
    assert!(matches!(error, Error::EndedEarly { .. }));
    assert!(error.to_string().contains("max_connections"), "{error}");
}
