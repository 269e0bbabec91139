//! The proxy between tokio-postgres and a real server: what its faults do to a commit.

mod clients;

use std::time::Duration;

use clients::postgres::connect;
use levada_testcontainers::{Action, Cut, Database, Direction, Postgres, Trigger, wait_until};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// The query and the answer to it, each with the last byte of its length. Without that one, the pattern would begin with a
/// letter, and the random message by which a client logs in may end with it: it would wait for ever for its last byte.
const COMMIT: &str = "\x0bCOMMIT\0";

/// Long enough for anything that could pass to have passed.
const QUIET: Duration = Duration::from_millis(150);

/// One transaction with one row.
async fn insert(url: &str) -> Result<(), tokio_postgres::Error> {
    let mut client = connect(url).await?;
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO rows VALUES (1)", &[]).await?;
    transaction.commit().await
}

/// A database on the shared server, with a table that has no key.
fn database_with_rows() -> Database {
    let database = Postgres::database().unwrap();
    database.psql("CREATE TABLE rows (id int)").unwrap();
    database
}

fn rows(database: &Database) -> String {
    database.psql("SELECT count(*) FROM rows").unwrap()
}

/// Waits until no session but the one that looks is in the database.
fn wait_for_sessions_to_end(database: &Database) {
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    wait_until(PATIENCE, "the end of the sessions", || database.psql(others).unwrap() == "0").unwrap();
}

/// [TST-04] The answer is in the stream as `C`, a length and the tag.
#[tokio::test]
async fn a_commit_whose_answer_is_cut_off_is_an_error_and_in_the_table() {
    let database = database_with_rows();
    let cut = Cut::to(database.url()).unwrap();
    let rule = cut.when(Direction::ToClient, Trigger::before(COMMIT), Action::Cut);
    let error = timeout(PATIENCE, insert(&cut.url(database.url()))).await.unwrap().unwrap_err();
    assert!(error.as_db_error().is_none(), "the server said so: {error}");
    rule.wait(PATIENCE).unwrap();
    assert_eq!(rows(&database), "1");
}

/// [TST-04]
#[tokio::test]
async fn a_connection_cut_after_its_commit_went_out_has_committed() {
    let database = database_with_rows();
    let cut = Cut::to(database.url()).unwrap();
    let rule = cut.when(Direction::ToServer, Trigger::after("COMMIT\0"), Action::Cut);
    timeout(PATIENCE, insert(&cut.url(database.url()))).await.unwrap().unwrap_err();
    rule.wait(PATIENCE).unwrap();
    // The client knows before the server has done it.
    wait_for_sessions_to_end(&database);
    assert_eq!(rows(&database), "1");
}

/// [TST-04]
#[tokio::test]
async fn a_connection_cut_before_its_commit_went_out_has_not_committed() {
    let database = database_with_rows();
    let cut = Cut::to(database.url()).unwrap();
    let rule = cut.when(Direction::ToServer, Trigger::before(COMMIT), Action::Cut);
    timeout(PATIENCE, insert(&cut.url(database.url()))).await.unwrap().unwrap_err();
    rule.wait(PATIENCE).unwrap();
    wait_for_sessions_to_end(&database);
    assert_eq!(rows(&database), "0");
}

/// [TST-04] The counter-test: the fault bites whoever takes an error for a failure.
#[tokio::test]
async fn a_blind_retry_after_a_cut_commit_doubles_the_row() {
    let database = database_with_rows();
    let cut = Cut::to(database.url()).unwrap();
    cut.when(Direction::ToClient, Trigger::before(COMMIT), Action::Cut);
    let mut attempts = 1;
    while timeout(PATIENCE, insert(&cut.url(database.url()))).await.unwrap().is_err() {
        attempts += 1;
    }
    assert_eq!((attempts, rows(&database).as_str()), (2, "2"));
}

/// [TST-04] And spares whoever looks first. A thread of its own ends the client's connection while this one waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_retry_that_looks_first_after_a_cut_commit_leaves_one_row() {
    for (direction, expected_attempts) in [(Direction::ToClient, 1), (Direction::ToServer, 2)] {
        let database = database_with_rows();
        let cut = Cut::to(database.url()).unwrap();
        let url = cut.url(database.url());
        cut.when(direction, Trigger::before(COMMIT), Action::Cut);
        let mut attempts = 0;
        loop {
            // What is not there yet might come while the old session lives.
            wait_for_sessions_to_end(&database);
            let client = connect(&url).await.unwrap();
            let count: i64 = client.query_one("SELECT count(*) FROM rows", &[]).await.unwrap().get(0);
            drop(client);
            if count > 0 {
                break;
            }
            attempts += 1;
            timeout(PATIENCE, insert(&url)).await.unwrap().ok();
        }
        assert_eq!((attempts, rows(&database).as_str()), (expected_attempts, "1"));
    }
}

/// [TST-04] While the network is away, neither side knows it: the server keeps the session with its locks.
#[tokio::test]
async fn a_held_session_keeps_its_locks_until_it_is_cut() {
    let database = database_with_rows();
    let cut = Cut::to(database.url()).unwrap();
    let client = connect(&cut.url(database.url())).await.unwrap();
    client.batch_execute("BEGIN; LOCK TABLE rows").await.unwrap();
    cut.hold();
    assert!(timeout(QUIET, client.batch_execute("COMMIT")).await.is_err(), "a held server answered");
    let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'rows'::regclass AND granted";
    assert_eq!(database.psql(locks).unwrap(), "1");
    cut.cut_all();
    assert!(client.batch_execute("SELECT 1").await.is_err());
    wait_for_sessions_to_end(&database);
    assert_eq!(database.psql(locks).unwrap(), "0");
}

/// [TST-04]
#[tokio::test]
async fn a_client_s_timeout_is_shorter_than_a_delay_and_the_work_is_done_all_the_same() {
    let database = database_with_rows();
    let cut = Cut::to(database.url()).unwrap();
    let client = connect(&cut.url(database.url())).await.unwrap();
    cut.delay(Duration::from_millis(400));
    let statement = "INSERT INTO rows VALUES (1)";
    assert!(timeout(Duration::from_millis(100), client.batch_execute(statement)).await.is_err());
    wait_until(PATIENCE, "the row", || rows(&database) == "1").unwrap();
}
